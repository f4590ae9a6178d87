// The Gaussian error linear unit.
//
//   kErf:   y = x F(x),  F(x) = (1 + erf(x / sqrt 2)) / 2
//   kTanh:  y = x (1 + tanh u) / 2 = x s(2u),  u = sqrt(2 / pi) (x + 0.044715 x^3), s the logistic
//           function; what GPT-2 was trained with
//
// Source: Hendrycks & Gimpel, "Gaussian Error Linear Units", 2016, section 2.
#pragma once

#include "core/autograd/tape.h"

namespace anabranch {

enum class GeluForm : uint8_t { kTanh, kErf };

// y = gelu(x) element by element, any shape. Keeps x; its gradient is written over that of y if no
// one else holds it.
Var gelu(const Var& x, GeluForm form = GeluForm::kTanh);

namespace cpu {

void gelu_forward(Tensor& y, const Tensor& x, GeluForm form);
// dx = dy gelu'(x); dx may be dy.
void gelu_backward(Tensor& dx, const Tensor& dy, const Tensor& x, GeluForm form);

}  // namespace cpu

namespace cuda {

void gelu_forward(Tensor& y, const Tensor& x, GeluForm form);
void gelu_backward(Tensor& dx, const Tensor& dy, const Tensor& x, GeluForm form);

}  // namespace cuda
}  // namespace anabranch
