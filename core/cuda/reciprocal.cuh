// Reciprocals without the slow path that an exact division of floats has for subnormal results.
#pragma once

#include <type_traits>

#include "core/cuda/launch.cuh"

namespace anabranch::cuda {

// 1 / x for x >= 1. Of a float within 2 ulp, and 0 where x is above 2^126; a NaN stays one. Of a
// double it is exact.
template <class A>
__device__ __forceinline__ A reciprocal(A x) {
  if constexpr (std::is_same_v<A, float>) {
    return __fdividef(1.0F, x);
  } else {
    return A(1) / x;
  }
}

}  // namespace anabranch::cuda
