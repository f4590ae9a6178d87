#include "core/ops/pool_counts.h"

namespace anabranch::cpu {

void pool_counts_before(Tensor& before, const Tensor& all, int64_t part) {
  const int64_t parts = all.dim(0), k = all.dim(1), E = all.dim(2);
  const auto* from = all.data<int64_t>();
  auto* to = before.data<int64_t>();
  for (int64_t e = 0; e < E; ++e) {
    int64_t served = 0;
    for (int64_t c = 0; c < k; ++c) {
      for (int64_t r = 0; r < parts; ++r) {
        if (r == part) to[c * E + e] = served;
        served += from[(r * k + c) * E + e];
      }
    }
  }
}

void pool_counts_total(Tensor& total, const Tensor& all) {
  const int64_t E = all.dim(2);
  const auto* from = all.data<int64_t>();
  auto* to = total.data<int64_t>();
  total.fill_zero();
  for (int64_t i = 0; i < all.count(); ++i) to[i % E] += from[i];
}

}  // namespace anabranch::cpu
