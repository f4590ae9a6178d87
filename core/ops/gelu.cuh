// GELU at one place, for the kernels that apply it.
#pragma once

#include <cmath>
#include <numbers>

#include "core/cuda/reciprocal.cuh"
#include "core/ops/gelu.h"

namespace anabranch::cuda {

// y and dy/dx at x.
template <class A>
struct GeluPoint {
  A value, slope;
};

template <class A>
__device__ __forceinline__ GeluPoint<A> gelu_tanh(A x) {
  constexpr A kTwice = A(2 * std::numbers::sqrt2 * std::numbers::inv_sqrtpi);  // 2 sqrt(2 / pi)
  constexpr A kCubic = A(0.044715);
  const A square = x * x;
  const A s = reciprocal(A(1) + std::exp(-kTwice * x * (A(1) + kCubic * square)));
  const A inner_slope = kTwice * (A(1) + A(3) * kCubic * square);
  return {x * s, s + x * s * (A(1) - s) * inner_slope};
}

template <class A>
__device__ __forceinline__ GeluPoint<A> gelu_erf(A x) {
  constexpr A kHalfRoot = A(std::numbers::sqrt2 / 2);
  constexpr A kDensity = A(std::numbers::inv_sqrtpi * std::numbers::sqrt2 / 2);  // 1 / sqrt(2 pi)
  const A f = A(0.5) * (A(1) + std::erf(x * kHalfRoot));
  return {x * f, f + x * kDensity * std::exp(A(-0.5) * x * x)};
}

template <class A>
__device__ __forceinline__ GeluPoint<A> gelu_at(A x, GeluForm form) {
  return form == GeluForm::kTanh ? gelu_tanh(x) : gelu_erf(x);
}

}  // namespace anabranch::cuda
