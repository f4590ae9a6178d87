#include <cmath>
#include <numbers>

#include "core/ops/gelu.h"
#include "core/tensor/elementwise.cuh"

namespace anabranch::cuda {
namespace {

// y and dy/dx at x.
template <class A>
struct Point {
  A value, slope;
};

template <class A>
__device__ __forceinline__ Point<A> tanh_form(A x) {
  constexpr A kTwice = A(2 * std::numbers::sqrt2 * std::numbers::inv_sqrtpi);  // 2 sqrt(2 / pi)
  constexpr A kCubic = A(0.044715);
  const A square = x * x;
  const A s = A(1) / (A(1) + std::exp(-kTwice * x * (A(1) + kCubic * square)));
  const A inner_slope = kTwice * (A(1) + A(3) * kCubic * square);
  return {x * s, s + x * s * (A(1) - s) * inner_slope};
}

template <class A>
__device__ __forceinline__ Point<A> erf_form(A x) {
  constexpr A kHalfRoot = A(std::numbers::sqrt2 / 2);
  constexpr A kDensity = A(std::numbers::inv_sqrtpi * std::numbers::sqrt2 / 2);  // 1 / sqrt(2 pi)
  const A f = A(0.5) * (A(1) + std::erf(x * kHalfRoot));
  return {x * f, f + x * kDensity * std::exp(A(-0.5) * x * x)};
}

template <class A>
__device__ __forceinline__ Point<A> at(A x, GeluForm form) {
  return form == GeluForm::kTanh ? tanh_form(x) : erf_form(x);
}

struct Forward {
  static constexpr int kInputs = 1;
  GeluForm form;

  template <class A>
  __device__ A operator()(A x) const {
    return at(x, form).value;
  }
};

struct Backward {
  static constexpr int kInputs = 2;
  GeluForm form;

  template <class A>
  __device__ A operator()(A dy, A x) const {
    return dy * at(x, form).slope;
  }
};

}  // namespace

void gelu_forward(Tensor& y, const Tensor& x, GeluForm form) { each(Forward{form}, y, x); }

void gelu_backward(Tensor& dx, const Tensor& dy, const Tensor& x, GeluForm form) {
  each(Backward{form}, dx, dy, &x);
}

}  // namespace anabranch::cuda
