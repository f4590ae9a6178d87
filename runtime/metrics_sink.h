// Reports as Prometheus metrics and as lines of metrics.jsonl; rank 0 only.
#pragma once

#include "monitoring/json_lines.h"
#include "monitoring/metrics.h"
#include "runtime/reports.h"

namespace anabranch {

class MetricsSink final : public ReportSink {
 public:
  // Keeps references to both.
  MetricsSink(Metrics& metrics, JsonLines& lines) : metrics_(metrics), lines_(lines) {}

  void step(const StepReport& report) override;
  void eval(const EvalReport& report) override;
  void save(const SaveReport& report) override;
  void event(const std::string& kind, const std::string& text) override;

 private:
  void write_lines(const StepReport& report);

  Metrics& metrics_;
  JsonLines& lines_;
};

}  // namespace anabranch
