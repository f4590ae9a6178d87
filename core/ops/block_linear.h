// A linear map in blocks: each of H slices of the channels through a matrix of its own.
//
//   y_h = x_h W_h^T + b_h,   x_h the h-th slice
//   dx_h = dy_h W_h,   dW_h = dy_h^T x_h,   db = sum_rows(dy)
#pragma once

#include "core/autograd/tape.h"

namespace anabranch {

// Maps each row's slices.
//
//   x, y  [N, H * D]
//   w     [H, D, D]   as x
//   bias  [H * D]     in x's accumulator type
//
// Keeps x. Throws Error if shapes or types do not fit.
Var block_linear(const Var& x, Param& w, Param& bias);

namespace cpu {

void block_linear_forward(Tensor& y, const Tensor& x, const Tensor& w, const Tensor& bias);
// dx: empty if unwanted.
void block_linear_backward(Tensor& dx, GradSink& dw, const Tensor& dy, const Tensor& x,
                           const Tensor& w);

}  // namespace cpu

namespace cuda {

void block_linear_forward(Tensor& y, const Tensor& x, const Tensor& w, const Tensor& bias);
void block_linear_backward(Tensor& dx, GradSink& dw, const Tensor& dy, const Tensor& x,
                           const Tensor& w);

}  // namespace cuda
}  // namespace anabranch
