// The logistic function.
#pragma once

#include <cmath>

#include "core/cuda/launch.cuh"

namespace anabranch::cuda {

template <class A>
__device__ __forceinline__ A sigmoid(A x) {
  return A(1) / (A(1) + std::exp(-x));
}

}  // namespace anabranch::cuda
