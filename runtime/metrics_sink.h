// Reports as Prometheus metrics, as their history and as lines of metrics.jsonl; rank 0 only.
#pragma once

#include "monitoring/json_lines.h"
#include "monitoring/metrics.h"
#include "monitoring/run_history.h"
#include "runtime/reports.h"

namespace anabranch {

class MetricsSink final : public ReportSink {
 public:
  // Keeps references to all three.
  MetricsSink(Metrics& metrics, RunHistory& history, JsonLines& lines)
      : metrics_(metrics), history_(history), lines_(lines) {}

  void step(const StepReport& report) override;
  void eval(const EvalReport& report) override;
  void save(const SaveReport& report) override;
  void event(const std::string& kind, const std::string& text) override;

 private:
  void record(const StepReport& report);
  void write_lines(const StepReport& report);
  void record(const EvalReport& report);
  void record(const SaveReport& report);

  Metrics& metrics_;
  RunHistory& history_;
  JsonLines& lines_;
};

}  // namespace anabranch
