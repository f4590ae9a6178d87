// A run on the terminal: a live bar there, plain lines elsewhere.
#pragma once

#include "launch/run_lines.h"
#include "runtime/reports.h"

namespace anabranch {

class RunDisplay final : public ReportSink {
 public:
  RunDisplay();

  void step(const StepReport& report) override;
  void eval(const EvalReport& report) override;
  void save(const SaveReport& report) override;
  void event(const std::string& kind, const std::string& text) override;

 private:
  void line(const std::string& text) const;

  bool terminal_;
  StepSeconds seconds_;
};

}  // namespace anabranch
