#include <numbers>

#include "core/base/build.h"
#include "core/base/parallel_for.h"
#include "core/ops/gelu.h"
#include "core/ops/vec_math.h"

namespace anabranch::cpu {
namespace {

constexpr int64_t kGrain = 1 << 14;

template <class T>
struct Pointers {
  T* out;
  const T *dy, *x;  // dy: null in forward
  int64_t n;
};

// y and dy/dx at x.
template <class A>
struct Point {
  A value, slope;
};

template <class A>
[[gnu::always_inline]] inline Point<A> tanh_form(A x) {
  constexpr A kTwice = A(2 * std::numbers::sqrt2 * std::numbers::inv_sqrtpi);  // 2 sqrt(2 / pi)
  constexpr A kCubic = A(0.044715);
  const A square = x * x;
  const A s = sigmoid_fast(kTwice * x * (A(1) + kCubic * square));
  const A inner_slope = kTwice * (A(1) + A(3) * kCubic * square);
  return {x * s, s + x * s * (A(1) - s) * inner_slope};
}

template <class A>
[[gnu::always_inline]] inline Point<A> erf_form(A x) {
  constexpr A kHalfRoot = A(std::numbers::sqrt2 / 2);
  constexpr A kDensity = A(std::numbers::inv_sqrtpi * std::numbers::sqrt2 / 2);  // 1 / sqrt(2 pi)
  const A f = A(0.5) * (A(1) + erf_fast(x * kHalfRoot));
  return {x * f, f + x * kDensity * exp_fast(A(-0.5) * x * x)};
}

template <class T, class At>
[[gnu::always_inline]] inline void each(Pointers<T> p, const At& at) {
  using A = Accumulator<T>;
  if (p.dy == nullptr) {
#pragma GCC ivdep
    for (int64_t i = 0; i < p.n; ++i) p.out[i] = T(at(A(p.x[i])).value);
  } else {
#pragma GCC ivdep
    for (int64_t i = 0; i < p.n; ++i) p.out[i] = T(A(p.dy[i]) * at(A(p.x[i])).slope);
  }
}

template <class T>
[[gnu::always_inline]] inline void either(Pointers<T> p, GeluForm form) {
  using A = Accumulator<T>;
  if (form == GeluForm::kTanh) {
    each(
        p, [](A x) __attribute__((always_inline)) { return tanh_form(x); });
  } else {
    each(
        p, [](A x) __attribute__((always_inline)) { return erf_form(x); });
  }
}

AB_CLONES void run(Pointers<float> p, GeluForm form) { either(p, form); }

AB_CLONES void run(Pointers<Bf16> p, GeluForm form) { either(p, form); }

void run(Pointers<double> p, GeluForm form) { either(p, form); }

template <class T>
void run_parallel(T* out, const T* dy, const T* x, int64_t n, GeluForm form) {
  parallel_for(n, kGrain, [=](int64_t begin, int64_t end) {
    run({out + begin, dy != nullptr ? dy + begin : nullptr, x + begin, end - begin}, form);
  });
}

}  // namespace

void gelu_forward(Tensor& y, const Tensor& x, GeluForm form) {
  dispatch(x.dtype(),
           [&]<class T>() { run_parallel<T>(y.data<T>(), nullptr, x.data<T>(), x.count(), form); });
}

void gelu_backward(Tensor& dx, const Tensor& dy, const Tensor& x, GeluForm form) {
  dispatch(x.dtype(), [&]<class T>() {
    run_parallel<T>(dx.data<T>(), dy.data<T>(), x.data<T>(), x.count(), form);
  });
}

}  // namespace anabranch::cpu
