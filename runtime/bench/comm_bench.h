// How fast ranks exchange data, and how much of it hides behind arithmetic.
#pragma once

#include <cstdint>
#include <vector>

#include "core/tensor/dtype.h"
#include "parallel/comm/group.h"

namespace anabranch {

struct CommBenchOptions {
  int64_t min_bytes = 8, max_bytes = int64_t{64} << 20, factor = 8;
  DType type = DType::kF32;
  int64_t repeats = 0;  // 0: 50 up to a MiB, 9 above
};

// One collective at one size. Bandwidths as nccl-tests defines them: `bytes` is of the larger
// buffer of a rank, algorithm bandwidth is bytes / seconds, and bus bandwidth is what each link has
// to carry for that: times 2 (n - 1) / n for an all-reduce, (n - 1) / n for the others.
// Source: NVIDIA, nccl-tests, doc/PERFORMANCE.md.
struct CommTiming {
  CollectiveKind kind{};
  int64_t bytes = 0;
  double seconds = 0;  // median of a call that starts behind a barrier, of the slowest rank

  [[nodiscard]] double algorithm_bandwidth() const { return static_cast<double>(bytes) / seconds; }

  [[nodiscard]] double bus_bandwidth(int ranks) const;
};

// Times all-reduce, all-gather, reduce-scatter and all-to-all over a range of sizes, which are
// rounded up to whole elements a rank. Collective; all ranks get the same.
std::vector<CommTiming> bench_collectives(Group& world, const CommBenchOptions& options);

// A backward of set length, and gradients that are reduced for real.
struct OverlapOptions {
  int64_t layers = 12;
  double layer_mb = 28.3, embedding_mb = 157;  // 10^6 bytes of float32 gradient; a GPT-2's
  double bucket_mb = 25;                       // MiB
  double backward_ms = 6000;
  int64_t steps = 3;
  bool bf16 = false;  // on the wire
};

struct OverlapBench {
  double step_seconds = 0, communication_seconds = 0, waited_seconds = 0;  // medians

  // The part of the reduction that the step did not wait for.
  [[nodiscard]] double hidden() const;
};

// The layers' gradients become ready one by one, the tied embedding's last. Collective.
OverlapBench bench_overlap(Group& world, const OverlapOptions& options);

}  // namespace anabranch
