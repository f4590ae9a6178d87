// Elementwise addition.
#pragma once

#include "core/autograd/tape.h"

namespace anabranch {

// z = x + y, of one shape and type. Keeps nothing; both gradients are dz itself, not copies.
Var add(const Var& x, const Var& y);

inline Var operator+(const Var& x, const Var& y) { return add(x, y); }

namespace cpu {

void add(Tensor& z, const Tensor& x, const Tensor& y);

}  // namespace cpu

namespace cuda {

void add(Tensor& z, const Tensor& x, const Tensor& y);

}  // namespace cuda
}  // namespace anabranch
