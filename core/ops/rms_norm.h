// Root-mean-square normalisation over the last axis, alone or fused with the residual addition.
//
//   r = 1 / sqrt(mean_c(x^2) + eps)                 per row
//   y = x r w
//   dx = r (g - x r^2 mean_c(g x)),  g = w dy
//   dw (+)= sum_rows(dy x r)
//
// Source: Zhang & Sennrich, "Root Mean Square Layer Normalization", 2019, eq. 4.
#pragma once

#include "core/autograd/tape.h"

namespace anabranch {

// Normalises each row of `x` to unit RMS and scales it by `w`.
//
//   x, y  [..., C]  activations
//   w     [C]       gain, in the accumulator type of x (float32 beside bfloat16)
//   eps             added to the mean square; same unit as x squared
//
// Keeps x and r. Throws Error if w is not [C] or of another type.
Var rms_norm(const Var& x, Param& w, double eps = 1e-5);

// The same without a gain.
Var rms_norm(const Var& x, double eps = 1e-5);

struct AddRmsNorm {
  Var sum, norm;
};

// sum = x + delta and norm = rms_norm(sum) in one pass. Keeps sum and r. The gradient of the sum
// becomes, in place if no one else holds it, the gradient of both x and delta.
AddRmsNorm add_rms_norm(const Var& x, const Var& delta, Param& w, double eps = 1e-5);
AddRmsNorm add_rms_norm(const Var& x, const Var& delta, double eps = 1e-5);

// Writes y and r [N], and sum if delta is there; w is empty for a gain of 1.
struct RmsNormForward {
  Tensor y, sum, r;
  Tensor x, delta, w;
  double eps;
};

// Writes dx if there is one, and dw if w is there; `residual`, if there is one, is added to dx and
// may be dx itself.
struct RmsNormBackward {
  GradSink dw;
  Tensor dx, residual;
  Tensor dy, x, r, w;
};

namespace cpu {

void rms_norm_forward(RmsNormForward& op);
void rms_norm_backward(RmsNormBackward& op);

}  // namespace cpu

namespace cuda {

void rms_norm_forward(RmsNormForward& op);
void rms_norm_backward(RmsNormBackward& op);

}  // namespace cuda
}  // namespace anabranch
