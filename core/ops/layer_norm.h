// Layer normalisation over the last axis, alone or fused with the residual addition before it.
//
//   m = mean_c(x),  r = 1 / sqrt(mean_c((x - m)^2) + eps),  h = (x - m) r       per row
//   y = h w + b
//   dx = r (g - mean_c(g) - h mean_c(g h)),  g = w dy
//   dw (+)= sum_rows(dy h),  db (+)= sum_rows(dy)
//
// Source: Ba et al., "Layer Normalization", 2016, eq. 4.
#pragma once

#include "core/autograd/tape.h"

namespace anabranch {

// Normalises each row of `x` to zero mean and unit variance, then scales and shifts it.
//
//   x, y  [..., C]  activations
//   w, b  [C]       gain and offset, in the accumulator type of x (float32 beside bfloat16)
//   eps             added to the variance; same unit as x squared
//
// Keeps x, m and r. Throws Error if w or b is not [C] or of another type.
Var layer_norm(const Var& x, Param& w, Param& b, double eps = 1e-5);

struct AddNorm {
  Var sum, norm;
};

// sum = x + delta and norm = layer_norm(sum) in one pass. Keeps sum, m and r. The gradient of the
// sum becomes, in place if no one else holds it, the gradient of both x and delta.
AddNorm add_layer_norm(const Var& x, const Var& delta, Param& w, Param& b, double eps = 1e-5);

// Writes y and stats, and sum if delta is there. [N, 2] stats hold (m, r) of each row.
struct LayerNormForward {
  Tensor y, sum, stats;
  Tensor x, delta, w, b;
  double eps;
};

// Writes dx if there is one; `residual`, if there is one, is added to it and may be dx itself.
struct LayerNormBackward {
  GradSink dw, db;
  Tensor dx, residual;
  Tensor dy, x, stats, w;
};

namespace cpu {

void layer_norm_forward(LayerNormForward& op);
void layer_norm_backward(LayerNormBackward& op);

}  // namespace cpu

namespace cuda {

void layer_norm_forward(LayerNormForward& op);
void layer_norm_backward(LayerNormBackward& op);

}  // namespace cuda
}  // namespace anabranch
