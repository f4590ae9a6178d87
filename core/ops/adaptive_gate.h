// A gate whose steepness, offset and size are computed per row.
//
//   sens = 2 sigma(r_0),   bias = tanh(r_1),   mag = 2 sigma(r_2)          per row
//   y = f mag q,   q = sigma(sens v + bias)
//   df = dy mag q,   dv = e sens,   e = dy f mag q (1 - q)
//   dsens = sum_c e v,   dbias = sum_c e,   dmag = sum_c dy f q
//
// At r = 0 it is sigmoid_gate(f, v). Source: the cMoLLM paper, section 4.5.4.
#pragma once

#include "core/autograd/tape.h"

namespace anabranch {

// Gates each row of f.
//
//   f, v, y  [M, C]  activations
//   r        [M, 3]  in their accumulator type
//
// Keeps f, v and r. Throws Error if shapes or types do not fit.
Var adaptive_gate(const Var& f, const Var& v, const Var& r);

// Each is empty if unwanted.
struct AdaptiveGradients {
  Tensor df, dv, dr;
};

namespace cpu {

void adaptive_gate_forward(Tensor& y, const Tensor& f, const Tensor& v, const Tensor& r);
void adaptive_gate_backward(AdaptiveGradients& to, const Tensor& dy, const Tensor& f,
                            const Tensor& v, const Tensor& r);

}  // namespace cpu

namespace cuda {

void adaptive_gate_forward(Tensor& y, const Tensor& f, const Tensor& v, const Tensor& r);
void adaptive_gate_backward(AdaptiveGradients& to, const Tensor& dy, const Tensor& f,
                            const Tensor& v, const Tensor& r);

}  // namespace cuda
}  // namespace anabranch
