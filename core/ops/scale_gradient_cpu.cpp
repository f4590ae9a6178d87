#include "core/base/parallel_for.h"
#include "core/ops/scale_gradient.h"

namespace anabranch::cpu {

void scale(Tensor& dx, const Tensor& dy, double factor) {
  dispatch(dy.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    T* to = dx.data<T>();
    const T* from = dy.data<T>();
    constexpr int64_t kGrain = 1 << 13;
    parallel_for(dy.count(), kGrain, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) to[i] = T(static_cast<A>(factor) * A(from[i]));
    });
  });
}

}  // namespace anabranch::cpu
