#include "core/ops/column_sums.cuh"
#include "core/ops/gemm.h"
#include "core/ops/linear.h"
#include "core/ops/row_bias.cuh"

namespace anabranch::cuda {

void linear_gelu_forward(Tensor& y, Tensor& h, const Tensor& x, const Tensor& w,
                         const Tensor& bias) {
  anabranch::gemm(h, x, w, {.transpose_b = true});
  row_bias<true>(h, bias, &y);
}

void column_sums(GradSink& db, const Tensor& dy) {
  dispatch(dy.dtype(), [&]<class T>() { column_sums<T>(db, dy, nullptr); });
}

}  // namespace anabranch::cuda
