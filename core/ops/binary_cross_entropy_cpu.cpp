#include <cmath>

#include "core/ops/binary_cross_entropy.h"

namespace anabranch::cpu {

double binary_cross_entropy_forward(const Tensor& logits, const Tensor& member) {
  double sum = 0;
  const auto* m = member.data<uint8_t>();
  dispatch(logits.dtype(), [&]<class T>() {
    const auto* z = logits.data<Accumulator<T>>();
    for (int64_t i = 0; i < logits.count(); ++i) {
      const auto v = static_cast<double>(z[i]);
      // softplus(v) = max(v, 0) + log(1 + exp(-|v|)): exp cannot overflow
      sum += std::fmax(v, 0.0) + std::log1p(std::exp(-std::fabs(v))) - (m[i] != 0 ? v : 0.0);
    }
  });
  return sum / static_cast<double>(logits.count());
}

void binary_cross_entropy_backward(GradSink& dlogits, double dloss, const Tensor& logits,
                                   const Tensor& member) {
  const auto* m = member.data<uint8_t>();
  const double seed = dloss / static_cast<double>(logits.count());
  dispatch(logits.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    const A* z = logits.data<A>();
    A* dz = dlogits.out.data<A>();
    for (int64_t i = 0; i < logits.count(); ++i) {
      const double p = 1 / (1 + std::exp(-static_cast<double>(z[i])));
      const A g = static_cast<A>(seed * (p - (m[i] != 0 ? 1.0 : 0.0)));
      dz[i] = dlogits.accumulate ? dz[i] + g : g;
    }
  });
}

}  // namespace anabranch::cpu
