#include "runtime/bench/comm_bench.h"

#include <algorithm>

#include "runtime/bench/timing.h"

namespace anabranch {
namespace {

constexpr CollectiveKind kTimed[] = {CollectiveKind::kAllReduceSum, CollectiveKind::kAllGather,
                                     CollectiveKind::kReduceScatterSum, CollectiveKind::kAllToAll};

std::vector<int64_t> sizes(const CommBenchOptions& options) {
  std::vector<int64_t> all;
  int64_t bytes = options.min_bytes;
  for (; bytes < options.max_bytes; bytes *= options.factor) all.push_back(bytes);
  all.push_back(options.max_bytes);
  return all;
}

// Both buffers whole, and a rank's part of each.
struct Buffers {
  Tensor whole, other;
  int64_t per_rank;

  Buffers(int64_t bytes, DType type, int ranks)
      : per_rank((bytes + size_of(type) * ranks - 1) / (size_of(type) * ranks)) {
    for (Tensor* t : {&whole, &other}) {
      *t = Tensor({per_rank * ranks}, type, nullptr, "bench");
      t->fill_zero();
    }
  }

  [[nodiscard]] Tensor part() const { return other.view(0, {per_rank}); }
};

Work start(Group& world, CollectiveKind kind, const Buffers& b) {
  switch (kind) {
    case CollectiveKind::kAllGather:
      return world.all_gather(b.whole, b.part());
    case CollectiveKind::kReduceScatterSum:
      return world.reduce_scatter_sum(b.part(), b.whole);
    case CollectiveKind::kAllToAll: {
      const std::vector<int64_t> rows(static_cast<size_t>(world.size()), b.per_rank);
      return world.all_to_all(b.other, b.whole, rows, rows);
    }
    default:
      return world.all_reduce_sum(b.whole);
  }
}

}  // namespace

double CommTiming::bus_bandwidth(int ranks) const {
  const double share = static_cast<double>(ranks - 1) / ranks;
  return algorithm_bandwidth() * (kind == CollectiveKind::kAllReduceSum ? 2 * share : share);
}

std::vector<CommTiming> bench_collectives(Group& world, const CommBenchOptions& options) {
  constexpr int64_t kFew = 9, kMany = 50, kLarge = 1 << 20;
  std::vector<CommTiming> all;
  for (const CollectiveKind kind : kTimed) {
    for (const int64_t bytes : sizes(options)) {
      const Buffers buffers(bytes, options.type, world.size());
      const int64_t repeats =
          options.repeats > 0 ? options.repeats : (bytes > kLarge ? kFew : kMany);
      std::vector<double> seconds;
      for (int64_t i = 0; i <= repeats; ++i) {
        world.barrier();
        const Stopwatch watch;
        start(world, kind, buffers).wait();
        if (i > 0) seconds.push_back(watch.seconds());  // the first touches fresh memory
      }
      all.push_back(
          {kind, static_cast<int64_t>(buffers.whole.bytes()), slowest(world, median(seconds))});
    }
  }
  return all;
}

}  // namespace anabranch
