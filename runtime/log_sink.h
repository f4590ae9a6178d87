// Reports as lines of a rank's log.
#pragma once

#include "core/base/log.h"
#include "runtime/reports.h"

namespace anabranch {

class LogSink final : public ReportSink {
 public:
  explicit LogSink(Log& log) : log_(log) {}

  void step(const StepReport& report) override;
  void eval(const EvalReport& report) override;
  void save(const SaveReport& report) override;
  void event(const std::string& kind, const std::string& text) override;

 private:
  Log& log_;
};

}  // namespace anabranch
