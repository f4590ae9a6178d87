#include "core/ops/block_linear.h"
#include "core/ops/gemm.h"
#include "core/ops/row_bias.cuh"

namespace anabranch::cuda {

void block_linear_forward(Tensor& y, const Tensor& x, const Tensor& w, const Tensor& bias) {
  const int64_t N = x.dim(0), H = w.dim(0), D = w.dim(1), C = H * D;
  dispatch(x.dtype(), [&]<class T>() {
    gemm(*x.pool(), y.device_data<T>(), x.device_data<T>(), w.device_data<T>(),
         {.m = N,
          .n = D,
          .k = D,
          .transpose_b = true,
          .lda = C,
          .ldc = C,
          .batch = H,
          .stride_a = D,
          .stride_b = D * D,
          .stride_c = D});
  });
  row_bias<false>(y, y, bias);
}

void block_linear_backward(Tensor& dx, GradSink& dw, const Tensor& dy, const Tensor& x,
                           const Tensor& w) {
  const int64_t N = x.dim(0), H = w.dim(0), D = w.dim(1), C = H * D;
  dispatch(x.dtype(), [&]<class T>() {
    const T* d = dy.device_data<T>();
    if (!dx.empty()) {
      gemm(*x.pool(), dx.device_data<T>(), d, w.device_data<T>(),
           {.m = N,
            .n = D,
            .k = D,
            .lda = C,
            .ldc = C,
            .batch = H,
            .stride_a = D,
            .stride_b = D * D,
            .stride_c = D});
    }
    gemm(*x.pool(), dw.out.device_data<Accumulator<T>>(), d, x.device_data<T>(),
         {.m = D,
          .n = D,
          .k = N,
          .transpose_a = true,
          .beta = dw.accumulate ? 1.0 : 0.0,
          .lda = C,
          .ldb = C,
          .batch = H,
          .stride_a = D,
          .stride_b = D,
          .stride_c = D * D});
  });
}

}  // namespace anabranch::cuda
