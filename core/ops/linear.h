// The linear map y = x w^T + b, and the same followed by GELU.
//
//   dx = dy w,   dw (+)= dy^T x,   db (+)= sum_rows(dy)
//
// Sums are float whatever the type (double for float64); db is summed by fixed blocks of rows. On a
// GPU the product is rounded before the bias is added to it; of linear_gelu, db sums what dh was
// before it was rounded.
#pragma once

#include "core/autograd/tape.h"

namespace anabranch {

// Maps each row of `x`.
//
//   x     [N, K]   activations; more leading axes are rows too
//   w     [M, K]   as x; or, beside bf16 x, float32: then y is float32 too (routers, gates)
//   bias  [M]      of x's type or its accumulator's; may be null
//   y     [N, M]   as w
//
// Keeps x. Throws Error if shapes or types do not fit.
Var linear(const Var& x, Param& w, Param* bias = nullptr);

// x w^T in the accumulator's type, for a part of a sum that other ranks add to: w [M, K] has some
// of the columns of a whole. Keeps x. The gradient of y may be of x's type even so.
Var linear_wide(const Var& x, Param& w);

// gelu(linear(x, w, bias)) with the tanh form of GELU, which runs on each row of the product
// while that is in the cache.
//
// Keeps x and the product, on a CPU with the bias in it; the product's gradient is written over
// that of y if no one else holds it.
Var linear_gelu(const Var& x, Param& w, Param& bias);

// db (+)= sum over the rows of dy.
void bias_gradient(GradSink& db, const Tensor& dy);

namespace cpu {

// h = x w^T + bias, y = gelu(h); the bias of the accumulator's type.
void linear_gelu_forward(Tensor& y, Tensor& h, const Tensor& x, const Tensor& w,
                         const Tensor& bias);
// dh = dy gelu'(h), which may be dy; db (+)= sum over the rows of dh.
void linear_gelu_backward(Tensor& dh, GradSink& db, const Tensor& dy, const Tensor& h,
                          const Tensor& bias);
// db (+)= sum over the rows of dy.
void column_sums(GradSink& db, const Tensor& dy);

}  // namespace cpu

namespace cuda {

// The same, but h = x w^T: the bias is added where it is read, so that the sum is never written.
void linear_gelu_forward(Tensor& y, Tensor& h, const Tensor& x, const Tensor& w,
                         const Tensor& bias);
void linear_gelu_backward(Tensor& dh, GradSink& db, const Tensor& dy, const Tensor& h,
                          const Tensor& bias);
void column_sums(GradSink& db, const Tensor& dy);

}  // namespace cuda
}  // namespace anabranch
