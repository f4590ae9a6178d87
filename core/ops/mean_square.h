// The mean square of a parameter, as a loss.
//
//   y = sum_i w_i^2 / n,   dw_i (+)= dy 2 w_i / n
#pragma once

#include "core/autograd/tape.h"

namespace anabranch {

// A scalar of w's type; attach_loss gives it its weight. `tape` may be null.
//
//   w  any shape  float32 or float64
//
// Keeps nothing. Throws Error if w has no elements or another type.
Var mean_square(Tape* tape, Param& w);

namespace cpu {

// y = the mean, dw (+)= dy 2 w / n; y and dy [1] of w's type.
void mean_square_forward(Tensor& y, const Tensor& w);
void mean_square_backward(GradSink& dw, const Tensor& dy, const Tensor& w);

}  // namespace cpu

namespace cuda {

void mean_square_forward(Tensor& y, const Tensor& w);
void mean_square_backward(GradSink& dw, const Tensor& dy, const Tensor& w);

}  // namespace cuda
}  // namespace anabranch
