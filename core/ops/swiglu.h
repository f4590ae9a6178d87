// The gated linear unit with a SiLU gate.
//
//   y = g s(g) u  where x = [g | u] along the last axis, s the logistic function
//   dg = dy u s(g) (1 + g (1 - s(g))),  du = dy g s(g)
//
// Source: Shazeer, "GLU Variants Improve Transformer", 2020, eq. 6.
#pragma once

#include "core/autograd/tape.h"

namespace anabranch {

// y = silu(gate) * up.
//
//   x  [..., 2F]  gate and up side by side
//   y  [..., F]
//
// Keeps x. Throws Error if the last axis is odd.
Var swiglu(const Var& x);

namespace cpu {

void swiglu_forward(Tensor& y, const Tensor& x);
void swiglu_backward(GradSink& dx, const Tensor& dy, const Tensor& x);

}  // namespace cpu

namespace cuda {

void swiglu_forward(Tensor& y, const Tensor& x);
void swiglu_backward(GradSink& dx, const Tensor& dy, const Tensor& x);

}  // namespace cuda
}  // namespace anabranch
