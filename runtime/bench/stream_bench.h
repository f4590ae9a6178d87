// What it costs to send rows to streams on other ranks and their sums home, by how many chunks they
// are cut into.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "core/tensor/dtype.h"
#include "parallel/comm/group.h"
#include "parallel/rank_context.h"
#include "parallel/regions.h"

namespace anabranch {

struct StreamBenchOptions {
  int64_t rows = 2048, width = 512;  // of each rank
  int64_t hidden = 0, streams = 8;   // 0: 4 width
  StreamLayout layout = StreamLayout::kGather;
  DType type = DType::kF32;
  int64_t rounds = 9;
  std::function<void(int64_t rounds)> on_round = {};  // told how many are done
};

// A region in so many chunks.
struct ChunkTiming {
  int64_t chunks = 0, rows = 0;          // of a rank in each but the last
  double forward = 0, backward = 0;      // median seconds of the slowest rank
  double communication = 0, waited = 0;  // median seconds that this rank's thread communicated, and
                                         // that its work waited for it, both ways

  [[nodiscard]] double seconds() const { return forward + backward; }
};

// Runs the streams of a layer forward and backward, in 1, 2, 4, .. chunks by turns, down to 16
// rows; one round does not count. Collective, over two ranks or more, and no more than streams.
std::vector<ChunkTiming> bench_streams(Group& world, const RankContext& context,
                                       const StreamBenchOptions& options);

}  // namespace anabranch
