// How fast a whole training step is, and on a CPU how much of it the matrix products alone would
// take.
// What is timed alone has random values and is the median of three calls after one of warm-up.
#pragma once

#include <cstdint>
#include <vector>

#include "parallel/comm/group.h"
#include "parallel/rank_context.h"
#include "runtime/bench/matrix_bench.h"
#include "runtime/config/config.h"

namespace anabranch {

struct StepBench {
  std::vector<double> seconds;           // of each measured step, on this rank
  int64_t tokens_per_step = 0;           // over all ranks
  double flops_per_step = 0;             // model arithmetic over all ranks
  double comm_wait_seconds = 0;          // median: waited for the reduction after backward
  double hidden = 1;                     // median: part of the reduction behind backward
  double update_seconds = 0;             // median: the optimizer
  MatrixRate matrices;                   // of the matrix optimizer; of no operations without one
  double linear_product_seconds = 0;     // the linear maps' and the head's products alone
  double attention_product_seconds = 0;  // attention's own matrix products alone
  double attention_seconds = 0;          // attention forward and backward as a whole, alone
  int64_t parameters = 0;
  int64_t gpu_waits = 0;  // of the last step: times that the host waited for its GPU

  [[nodiscard]] double product_seconds() const {
    return linear_product_seconds + attention_product_seconds;
  }

  int64_t pool_peak_bytes = 0;      // of this rank's tensors
  int64_t resident_peak_bytes = 0;  // of this process
};

// Runs `warmup` and then `steps` training steps (forward, backward, reduction, clip, optimizer) of
// the configured model and batch on random tokens, and the same products alone. Collective.
//
//   vocabulary  entries, since no data set is read
StepBench bench_step(const Config& config, int64_t vocabulary, int64_t warmup, int64_t steps,
                     Group& world, RankContext& context);

}  // namespace anabranch
