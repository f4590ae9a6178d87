// The lines that a run prints of itself: `train` as it goes, `watch` from metrics.jsonl.
#pragma once

#include <string>

#include "runtime/reports.h"

namespace anabranch {

// "step 10/100  loss 2.5000  lr 0.001  norm 0.900  45.6 k tokens/s  mfu 31.0%  1:02 left".
//
//   left  seconds to the end of the run; below 0: unknown
//
// Without total_steps the line says neither that nor the time left.
std::string step_line(const StepReport& report, double left);

// Of a step that was not applied.
std::string skipped_line(const StepReport& report);

std::string eval_line(const EvalReport& report);
std::string save_line(const SaveReport& report);
std::string event_line(const std::string& kind, const std::string& text);

// "  mfu 31.0%", or nothing if no peak was stated.
std::string mfu_text(const StepReport& report);

// The mean of a step's seconds, in which the newest count most, for the time left.
class StepSeconds {
 public:
  void add(double seconds);

  // Seconds that this many steps will take; -1 if none has been seen.
  [[nodiscard]] double of(int64_t steps) const;

 private:
  double mean_ = 0;
};

}  // namespace anabranch
