#include <algorithm>

#include "core/base/build.h"
#include "core/base/parallel_for.h"
#include "core/ops/swiglu.h"
#include "core/ops/vec_math.h"

namespace anabranch::cpu {
namespace {

template <class T>
struct Forward {
  T* y;
  const T* x;
  int64_t rows, width;  // of y
};

template <class T>
struct Backward {
  T* dx;
  const T *dy, *x;
  int64_t rows, width;
  bool accumulate;
};

template <class T>
[[gnu::always_inline]] inline void forward_rows(Forward<T> k) {
  using A = Accumulator<T>;
  for (int64_t row = 0; row < k.rows; ++row) {
    const T *gate = k.x + 2 * row * k.width, *up = gate + k.width;
    T* y = k.y + row * k.width;
#pragma GCC ivdep
    for (int64_t c = 0; c < k.width; ++c) {
      const A g = A(gate[c]);
      y[c] = T(g * sigmoid_fast(g) * A(up[c]));
    }
  }
}

template <class T, bool kAdd>
[[gnu::always_inline]] inline void backward_rows(Backward<T> k) {
  using A = Accumulator<T>;
  for (int64_t row = 0; row < k.rows; ++row) {
    const T *gate = k.x + 2 * row * k.width, *up = gate + k.width, *dy = k.dy + row * k.width;
    T *dgate = k.dx + 2 * row * k.width, *dup = dgate + k.width;
#pragma GCC ivdep
    for (int64_t c = 0; c < k.width; ++c) {
      const A g = A(gate[c]), s = sigmoid_fast(g), d = A(dy[c]);
      const A to_gate = d * A(up[c]) * s * (A(1) + g * (A(1) - s)), to_up = d * g * s;
      dgate[c] = T(kAdd ? A(dgate[c]) + to_gate : to_gate);
      dup[c] = T(kAdd ? A(dup[c]) + to_up : to_up);
    }
  }
}

template <class T>
[[gnu::always_inline]] inline void backward_rows_any(Backward<T> k) {
  if (k.accumulate) return backward_rows<T, true>(k);
  backward_rows<T, false>(k);
}

AB_CLONES void run(Forward<float> k) { forward_rows(k); }

AB_CLONES void run(Forward<Bf16> k) { forward_rows(k); }

void run(Forward<double> k) { forward_rows(k); }

AB_CLONES void run(Backward<float> k) { backward_rows_any(k); }

AB_CLONES void run(Backward<Bf16> k) { backward_rows_any(k); }

void run(Backward<double> k) { backward_rows_any(k); }

// Rows that are worth a thread's while.
int64_t grain(int64_t width) {
  return std::max<int64_t>(1, (1 << 13) / std::max<int64_t>(width, 1));
}

}  // namespace

void swiglu_forward(Tensor& y, const Tensor& x) {
  const int64_t n = y.dim(-1), rows = n == 0 ? 0 : y.count() / n;
  dispatch(x.dtype(), [&]<class T>() {
    T* to = y.data<T>();
    const T* from = x.data<T>();
    parallel_for(rows, grain(n), [=](int64_t begin, int64_t end) {
      run(Forward<T>{to + begin * n, from + 2 * begin * n, end - begin, n});
    });
  });
}

void swiglu_backward(GradSink& dx, const Tensor& dy, const Tensor& x) {
  const int64_t n = dy.dim(-1), rows = n == 0 ? 0 : dy.count() / n;
  dispatch(x.dtype(), [&]<class T>() {
    T* to = dx.out.data<T>();
    const T *gradient = dy.data<T>(), *from = x.data<T>();
    const bool accumulate = dx.accumulate;
    parallel_for(rows, grain(n), [=](int64_t begin, int64_t end) {
      run(Backward<T>{to + 2 * begin * n, gradient + begin * n, from + 2 * begin * n, end - begin,
                      n, accumulate});
    });
  });
}

}  // namespace anabranch::cpu
