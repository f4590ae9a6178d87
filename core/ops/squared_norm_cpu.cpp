#include <algorithm>
#include <numeric>
#include <vector>

#include "core/base/build.h"
#include "core/base/parallel_for.h"
#include "core/ops/squared_norm.h"
#include "core/ops/vec_math.h"

namespace anabranch::cpu {
namespace {

constexpr int64_t kBlock = 1 << 15;

template <class T>
[[gnu::always_inline]] inline double block_sum(const T* x, int64_t n) {
  return lane_sum<double>(
      n, [x](int64_t i) __attribute__((always_inline)) {
        const auto value = static_cast<double>(static_cast<Accumulator<T>>(x[i]));
        return value * value;
      });
}

AB_CLONES double sum(const float* x, int64_t n) { return block_sum(x, n); }

AB_CLONES double sum(const double* x, int64_t n) { return block_sum(x, n); }

AB_CLONES double sum(const Bf16* x, int64_t n) { return block_sum(x, n); }

}  // namespace

double squared_norm(const Tensor& x) {
  std::vector<double> sums(static_cast<size_t>((x.count() + kBlock - 1) / kBlock));
  dispatch(x.dtype(), [&]<class T>() {
    const T* from = x.data<T>();
    parallel_for(std::ssize(sums), 1, [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b) {
        const int64_t first = b * kBlock;
        sums[static_cast<size_t>(b)] = sum(from + first, std::min(kBlock, x.count() - first));
      }
    });
  });
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

}  // namespace anabranch::cpu
