// A gradient that counts for less on its way back.
//
//   y = x,   dx = factor dy
#pragma once

#include "core/autograd/tape.h"

namespace anabranch {

// x itself, whatever its shape and type. Keeps nothing.
Var scale_gradient(const Var& x, double factor);

// dx = factor dy, on their device.
void scale(Tensor& dx, const Tensor& dy, double factor);

namespace cpu {

void scale(Tensor& dx, const Tensor& dy, double factor);

}  // namespace cpu

namespace cuda {

void scale(Tensor& dx, const Tensor& dy, double factor);

}  // namespace cuda
}  // namespace anabranch
