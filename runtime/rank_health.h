// What a run looks after while it trains: that no rank hangs, holds up the others, or has weights
// of its own.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "parallel/comm/group.h"
#include "parallel/rank_context.h"
#include "runtime/config/config.h"
#include "runtime/reports.h"
#include "runtime/train_step.h"
#include "runtime/watchdog.h"

namespace anabranch {

// Finds the rank that holds up the others: its own arithmetic, without its waits for them, takes
// longer than the median rank's, in window after window of steps.
class SlowRank {
 public:
  static constexpr double kRatio = 1.5;  // from which on a rank is slow
  static constexpr int kWindows = 2;     // for how many windows in a row it must be

  // Takes the seconds that each rank has computed in a window. True if the slowest one has been
  // slow for kWindows windows, and again for each kWindows more.
  bool add(const std::vector<double>& seconds);

  [[nodiscard]] int rank() const { return rank_; }  // the slowest of the last window

  [[nodiscard]] double ratio() const { return ratio_; }  // its seconds over the median's

 private:
  int rank_ = 0, windows_ = 0;
  double ratio_ = 1;
};

class RankHealth {
 public:
  using Tell = std::function<void(const std::string& kind, const std::string& text)>;

  // Collective. Keeps references.
  RankHealth(Group& world, const RankContext& context, const Config& config, Watchdog& watchdog,
             Tell tell);

  // This rank has done a step, `compute_seconds` of which it did not wait for others or for data:
  // names a rank that was slow up to a logged step, and shortens the deadline of collectives to
  // what the watchdog grants. Collective.
  void step_done(StepReport& report, double compute_seconds);

  // Compares the ranks' weights if that is due after `step` steps, or always. Collective. Throws
  // Error (internal, 70) on all ranks if they differ.
  void check_weights(TrainStep& train, int64_t step, bool always = false);

 private:
  Group& world_;
  const RankContext& context_;
  const Config& config_;
  Watchdog& watchdog_;
  Tell tell_;
  std::vector<std::string> names_;  // "rank 3 on h2", by rank in training
  SlowRank slow_;
  double window_seconds_ = 0;  // that this rank has computed since the last window
  int64_t last_good_ = -1;     // the last step after which the weights were equal
};

}  // namespace anabranch
