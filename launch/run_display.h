// A run on the terminal: a live bar there, plain lines elsewhere.
#pragma once

#include "launch/progress.h"
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
  double mean_seconds_ = 0;  // of a step, smoothed, for the time left
};

}  // namespace anabranch
