// The logistic function.
#pragma once

#include <cmath>

#include "core/cuda/reciprocal.cuh"

namespace anabranch::cuda {

template <class A>
__device__ __forceinline__ A sigmoid(A x) {
  return reciprocal(A(1) + std::exp(-x));
}

}  // namespace anabranch::cuda
