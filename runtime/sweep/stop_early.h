// Which runs of a sweep end early, because others of it are clearly better.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/run_series.h"
#include "runtime/sweep/record.h"
#include "runtime/sweep/sweep_rules.h"

namespace anabranch {

// The file of a run's directory that says that this rule has ended it.
inline constexpr const char* kStoppedEarly = "stopped.json";

// What is known of a run.
struct RunSoFar {
  RunSeries series;      // empty: it has not started
  bool over = false;     // done, failed or stopped: nothing can end it any more
  bool stopped = false;  // over, by this rule
};

struct StopVerdict {
  size_t run = 0;  // of the record's
  // What its point was judged by; zeros where another run of it was stopped before.
  int64_t tokens = 0;
  double loss = 0;    // of the point at so many tokens
  double better = 0;  // what enough others have at most
  std::string why;    // a sentence
};

// Points are judged, not runs: ending the worst seeds alone would flatter a point's mean. A point's
// loss at t tokens is the mean over those of its runs that got there (run_loss.h). Of n points with
// equal values of `per`, k = ceil(keep * n), 1 or more. A point is compared with the others at the
// most tokens that it and k others have reached, and not before `after`; it ends if k others are
// better by more than `margin`. A loss that is not finite is worse than any that is. At most n - k
// points end, the furthest off first; so the best one never does.
//
//   runs  as record.runs
//
// Returns the runs of ended points that are not over, started or not, in the record's order.
std::vector<StopVerdict> runs_to_stop(const EarlyStop& rule, const SweepRecord& record,
                                      const std::vector<RunSoFar>& runs);

}  // namespace anabranch
