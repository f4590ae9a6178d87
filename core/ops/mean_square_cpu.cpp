#include "core/base/parallel_for.h"
#include "core/ops/mean_square.h"
#include "core/ops/squared_norm.h"
#include "core/tensor/element.h"

namespace anabranch::cpu {

void mean_square_forward(Tensor& y, const Tensor& w) {
  set_element(y, cpu::squared_norm(w) / static_cast<double>(w.count()));
}

void mean_square_backward(GradSink& dw, const Tensor& dy, const Tensor& w) {
  const double factor = element(dy) * 2 / static_cast<double>(w.count());
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
