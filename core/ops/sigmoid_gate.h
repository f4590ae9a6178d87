// An element-wise gate.
//
//   y = a sigma(b)
//   da = dy sigma(b),   db = dy a sigma(b) (1 - sigma(b))
#pragma once

#include "core/autograd/tape.h"

namespace anabranch {

// a, b, y of one shape and type. Keeps a and b. Throws Error if they differ.
Var sigmoid_gate(const Var& a, const Var& b);

namespace cpu {

void sigmoid_gate_forward(Tensor& y, const Tensor& a, const Tensor& b);
// Each is empty if unwanted.
void sigmoid_gate_backward(Tensor& da, Tensor& db, const Tensor& dy, const Tensor& a,
                           const Tensor& b);

}  // namespace cpu

namespace cuda {

void sigmoid_gate_forward(Tensor& y, const Tensor& a, const Tensor& b);
void sigmoid_gate_backward(Tensor& da, Tensor& db, const Tensor& dy, const Tensor& a,
                           const Tensor& b);

}  // namespace cuda
}  // namespace anabranch
