#include "core/base/parallel_for.h"
#include "core/ops/mean_square.h"
#include "core/ops/squared_norm.h"

namespace anabranch::cpu {

double mean_square(const Tensor& w) {
  return cpu::squared_norm(w) / static_cast<double>(w.count());
}

void add_multiple(GradSink& dw, double factor, const Tensor& w) {
  dispatch(w.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    A* to = dw.out.data<A>();
    const T* from = w.data<T>();
    const auto by = static_cast<A>(factor);
    const bool accumulate = dw.accumulate;
    constexpr int64_t kGrain = 1 << 13;
    parallel_for(w.count(), kGrain, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const A term = by * A(from[i]);
        to[i] = accumulate ? to[i] + term : term;
      }
    });
  });
}

}  // namespace anabranch::cpu
