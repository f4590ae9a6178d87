#include "runtime/bench/timing.h"

#include <algorithm>

#include "core/base/parallel_for.h"
#include "core/base/philox.h"

namespace anabranch {
namespace {

// Drawn for a tensor; longer ones have them again and again.
constexpr int64_t kOwnValues = 1 << 20;

// Where the host may fill what goes to `pool`.
std::shared_ptr<Pool> on_host(const std::shared_ptr<Pool>& pool) {
  return pool && pool->device().is_cuda() ? nullptr : pool;
}

Tensor placed(const Tensor& t, const std::shared_ptr<Pool>& pool) {
  return pool && pool->device().is_cuda() ? t.copy_in(pool, "bench") : t;
}

}  // namespace

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  return (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
}

std::vector<double> slowest(Group& world, const std::vector<double>& seconds) {
  Tensor all = Tensor::of<double>({std::ssize(seconds)}, seconds);
  world.all_reduce_max(all).wait();
  return {all.data<double>(), all.data<double>() + all.count()};
}

double slowest(Group& world, double seconds) {
  return slowest(world, std::vector<double>{seconds}).front();
}

Tensor random_ids(Shape shape, int64_t vocabulary, uint64_t seed,
                  const std::shared_ptr<Pool>& pool) {
  Tensor ids(shape, DType::kI32, on_host(pool), "batch");
  for (int64_t i = 0; i < ids.count(); ++i) {
    const uint64_t word = philox(seed, static_cast<uint64_t>(i))[0];
    ids.data<int32_t>()[i] = static_cast<int32_t>(word * static_cast<uint64_t>(vocabulary) >> 32U);
  }
  return placed(ids, pool);
}

Tensor random_values(Shape shape, DType type, const std::shared_ptr<Pool>& pool) {
  Tensor t(shape, type, on_host(pool), "bench");
  dispatch(type, [&]<class T>() {
    T* to = t.data<T>();
    const int64_t own = std::min(t.count(), kOwnValues);
    parallel_for(own, 1 << 14, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const PhiloxBlock word = philox(1, static_cast<uint64_t>(i));
        to[i] = T(static_cast<Accumulator<T>>(normal_pair(word[0], word[1])[0]));
      }
    });
    parallel_for(t.count() - own, kOwnValues, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; i += own)
        std::copy_n(to, std::min(own, end - i), to + own + i);
    });
  });
  return placed(t, pool);
}

}  // namespace anabranch
