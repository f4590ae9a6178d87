// A training step of one configuration against that of another, by turns in one process: what slows
// the machine slows both.
#pragma once

#include <cstdint>
#include <vector>

#include "parallel/comm/group.h"
#include "parallel/rank_context.h"
#include "runtime/bench/paired.h"
#include "runtime/config/config.h"

namespace anabranch {

struct StepPair {
  struct Side {
    std::vector<double> seconds;  // of the step of each pair, on this rank
    double update_seconds = 0;    // median: the optimizer
    int64_t parameters = 0;
    double macs_per_token = 0;
    int64_t tokens_per_step = 0;  // over all ranks
  };

  Side first, second;
  PairedRatio ratio;  // of their times, first over second
  // Multiply-adds of a step, first over second.
  [[nodiscard]] double macs_ratio() const;

  int64_t pool_peak_bytes = 0;      // of this rank's tensors, of both
  int64_t resident_peak_bytes = 0;  // of this process
};

// Runs `pairs` pairs of steps on random tokens after one that does not count; who begins a pair
// alternates. Both models lie in memory. Collective.
//
//   vocabulary  entries, since no data set is read
StepPair bench_step_pair(const Config& first, const Config& second, int64_t vocabulary,
                         int64_t pairs, Group& world, RankContext& context);

}  // namespace anabranch
