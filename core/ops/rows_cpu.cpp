#include "core/base/parallel_for.h"
#include "core/ops/rows.h"

namespace anabranch::cpu {

void add_row(Tensor& y, const Tensor& x, const Tensor& b) {
  constexpr int64_t kGrain = 16;  // rows
  dispatch(y.dtype(), [&]<class T>() {
    dispatch(x.dtype(), [&]<class X>() {
      using A = Accumulator<T>;
      T* to = y.data<T>();
      const X* from = x.data<X>();
      const A* bias = b.data<A>();
      parallel_for(y.dim(0), kGrain, [=, C = y.dim(1)](int64_t begin, int64_t end) {
        for (int64_t i = begin * C; i < end * C; i += C) {
          for (int64_t c = 0; c < C; ++c) {
            to[i + c] = T(static_cast<A>(static_cast<Accumulator<X>>(from[i + c])) + bias[c]);
          }
        }
      });
    });
  });
}

}  // namespace anabranch::cpu
