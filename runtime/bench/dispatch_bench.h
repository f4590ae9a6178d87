// What it costs to send rows to experts on other ranks and their results home, against an
// all-to-all of the same bytes and one copy each way.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/tensor/dtype.h"
#include "parallel/comm/group.h"
#include "parallel/rank_context.h"
#include "runtime/bench/paired.h"

namespace anabranch {

struct DispatchBenchOptions {
  int64_t rows = 4096, width = 512;  // of each rank
  int64_t experts = 32, top_k = 2;   // each row goes to top_k of them, by chance
  DType type = DType::kF32;
  int64_t pairs = 20;
  std::function<void(int64_t pairs)> on_pair = {};  // told how many are done
};

struct DispatchBench {
  struct Stage {
    std::string name;
    double seconds = 0;  // median, of this rank
  };

  struct Side {
    std::vector<double> seconds;  // of each pair, of the slowest rank
    std::vector<Stage> stages;
  };

  // Rows packed, sent and sorted by expert; their results packed, sent home and combined.
  Side dispatch;
  // Bytes copied and sent, bytes sent back and copied.
  Side plain;
  PairedRatio ratio;  // of their times, dispatch over plain
  // What this rank sends: rows, and results for the rows of all; its own part among them.
  int64_t bytes_out = 0, bytes_home = 0;
};

// Runs `pairs` pairs behind barriers after one that does not count; who begins a pair alternates.
// No gradients. Collective, over two ranks or more and as many experts.
DispatchBench bench_dispatch(Group& world, const RankContext& context,
                             const DispatchBenchOptions& options);

}  // namespace anabranch
