#include <vector>

#include "core/base/parallel_for.h"
#include "core/ops/block_linear.h"
#include "core/ops/gemm.h"

namespace anabranch::cpu {

void block_linear_forward(Tensor& y, const Tensor& x, const Tensor& w, const Tensor& bias) {
  const int64_t N = x.dim(0), H = w.dim(0), D = w.dim(1), C = H * D;
  dispatch(x.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    for (int64_t h = 0; h < H; ++h) {
      const GemmShape s{N, D, D, false, true, false, C, D, C};
      const GemmEnd<A> end{bias.data<A>() + h * D, nullptr, x.pool()};
      gemm<T, T>(y.data<T>() + h * D, x.data<T>() + h * D, w.data<T>() + h * D * D, s, end);
    }
  });
}

void block_linear_backward(Tensor& dx, GradSink& dw, const Tensor& dy, const Tensor& x,
                           const Tensor& w) {
  const int64_t N = x.dim(0), H = w.dim(0), D = w.dim(1), C = H * D;
  dispatch(x.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    for (int64_t h = 0; h < H; ++h) {
      const T* d = dy.data<T>() + h * D;
      if (!dx.empty()) {
        gemm<T, T>(dx.data<T>() + h * D, d, w.data<T>() + h * D * D,
                   {N, D, D, false, false, false, C, D, C});
      }
      gemm<T, A>(dw.out.data<A>() + h * D * D, d, x.data<T>() + h * D,
                 {D, D, N, true, false, dw.accumulate, C, C, D});
    }
  });
}

}  // namespace anabranch::cpu
