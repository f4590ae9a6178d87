// The sum of squares, for gradient norms.
#pragma once

#include "core/tensor/tensor.h"

namespace anabranch {

// sum_i x_i^2 in double, by fixed blocks: the same for any number of threads. NaN and infinity
// come through. Any floating type.
//
// The first form waits for a GPU. The second writes into `to` [1], float64 beside x, and does not:
// sums of several tensors may be read together.
double squared_norm(const Tensor& x);
void squared_norm(Tensor& to, const Tensor& x);

namespace cpu {

double squared_norm(const Tensor& x);

}  // namespace cpu

namespace cuda {

void squared_norm(Tensor& to, const Tensor& x);

}  // namespace cuda
}  // namespace anabranch
