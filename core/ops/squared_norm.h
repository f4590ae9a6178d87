// The sum of squares, for gradient norms.
#pragma once

#include "core/tensor/tensor.h"

namespace anabranch {

// sum_i x_i^2 in double, by fixed blocks: the same for any number of threads. NaN and infinity
// come through. Any floating type.
double squared_norm(const Tensor& x);

namespace cpu {

double squared_norm(const Tensor& x);

}  // namespace cpu
}  // namespace anabranch
