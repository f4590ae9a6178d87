#include <cmath>

#include "core/base/build.h"
#include "core/ops/rms_norm.h"
#include "core/ops/row_blocks.h"
#include "core/ops/vec_math.h"

namespace anabranch::cpu {
namespace {

// The pointers of some rows, so that the kernels below are compiled for several CPUs by type.
template <class T>
struct Forward {
  T *y, *sum;  // sum: null without delta
  Accumulator<T>* r;
  const T *x, *delta;
  const Accumulator<T>* w;  // null for a gain of 1
  int64_t rows, width;
  Accumulator<T> eps;
};

template <class T>
[[gnu::always_inline]] inline void forward_rows(Forward<T> k) {
  using A = Accumulator<T>;
  const int64_t n = k.width;
  for (int64_t row = 0; row < k.rows; ++row) {
    const T* x = k.x + row * n;
    T* y = k.y + row * n;
    if (k.delta != nullptr) {
      const T* delta = k.delta + row * n;
      T* sum = k.sum + row * n;
#pragma GCC ivdep
      for (int64_t c = 0; c < n; ++c) sum[c] = T(A(x[c]) + A(delta[c]));
      x = sum;
    }
    const A squares = lane_sum<A>(n, [x](int64_t c) { return A(x[c]) * A(x[c]); });
    const A r = A(1) / std::sqrt(squares / static_cast<A>(n) + k.eps);
    if (k.w != nullptr) {
#pragma GCC ivdep
      for (int64_t c = 0; c < n; ++c) y[c] = T(A(x[c]) * r * k.w[c]);
    } else {
#pragma GCC ivdep
      for (int64_t c = 0; c < n; ++c) y[c] = T(A(x[c]) * r);
    }
    k.r[row] = r;
  }
}

template <class T>
struct Backward {
  T* dx;              // null if not wanted
  const T* residual;  // null, or added to dx; may be dx
  const T *dy, *x;
  const Accumulator<T>*r, *w;
  Accumulator<T>* dw;  // the sum of these rows, added to
  int64_t rows, width;
};

template <class T, bool kGain>
[[gnu::always_inline]] inline void backward_rows(Backward<T> k) {
  using A = Accumulator<T>;
  const int64_t n = k.width;
  for (int64_t row = 0; row < k.rows; ++row) {
    const T *dy = k.dy + row * n, *x = k.x + row * n;
    const A r = k.r[row];
    const auto g = [ dy, &k ](int64_t c) __attribute__((always_inline)) {
      return kGain ? A(dy[c]) * k.w[c] : A(dy[c]);
    };
    if constexpr (kGain) {
#pragma GCC ivdep
      for (int64_t c = 0; c < n; ++c) k.dw[c] += A(dy[c]) * A(x[c]) * r;
    }
    if (k.dx == nullptr) continue;
    const A sum = lane_sum<A>(n, [=](int64_t c) { return g(c) * A(x[c]); });
    const A along = sum / static_cast<A>(n) * r * r;
    T* dx = k.dx + row * n;
    if (k.residual == nullptr) {
#pragma GCC ivdep
      for (int64_t c = 0; c < n; ++c) dx[c] = T(r * (g(c) - A(x[c]) * along));
    } else {
      const T* residual = k.residual + row * n;
#pragma GCC ivdep
      for (int64_t c = 0; c < n; ++c) {
        dx[c] = T(A(residual[c]) + r * (g(c) - A(x[c]) * along));
      }
    }
  }
}

template <class T>
[[gnu::always_inline]] inline void backward_rows_any(Backward<T> k) {
  if (k.w != nullptr) return backward_rows<T, true>(k);
  backward_rows<T, false>(k);
}

AB_CLONES void run(Forward<float> k) { forward_rows(k); }

AB_CLONES void run(Forward<Bf16> k) { forward_rows(k); }

void run(Forward<double> k) { forward_rows(k); }

AB_CLONES void run(Backward<float> k) { backward_rows_any(k); }

AB_CLONES void run(Backward<Bf16> k) { backward_rows_any(k); }

void run(Backward<double> k) { backward_rows_any(k); }

template <class T>
const T* data_or_null(const Tensor& t) {
  return t.empty() ? nullptr : t.data<T>();
}

}  // namespace

void rms_norm_forward(RmsNormForward& op) {
  dispatch(op.x.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    const int64_t rows = op.r.dim(0), n = op.x.dim(-1);
    T *y = op.y.data<T>(), *sum = op.sum.empty() ? nullptr : op.sum.data<T>();
    const T *x = op.x.data<T>(), *delta = data_or_null<T>(op.delta);
    A* r = op.r.data<A>();
    const A *w = data_or_null<A>(op.w), eps = static_cast<A>(op.eps);
    const int64_t grain = std::max<int64_t>(1, (1 << 14) / std::max<int64_t>(n, 1));
    parallel_for(rows, grain, [=](int64_t begin, int64_t end) {
      const int64_t at = begin * n;
      run(Forward<T>{y + at, sum != nullptr ? sum + at : nullptr, r + begin, x + at,
                     delta != nullptr ? delta + at : nullptr, w, end - begin, n, eps});
    });
  });
}

void rms_norm_backward(RmsNormBackward& op) {
  dispatch(op.x.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    const int64_t n = op.x.dim(-1);
    const RowBlocks blocks(op.r.dim(0));
    const A *r = op.r.data<A>(), *w = data_or_null<A>(op.w);
    Tensor partials;
    if (w != nullptr) {
      partials = op.x.like({blocks.count, n}, accumulator_of(op.x.dtype()), "rms_norm_partials");
    }
    A* sums = w != nullptr ? partials.data<A>() : nullptr;
    T* dx = op.dx.empty() ? nullptr : op.dx.data<T>();
    const T *residual = data_or_null<T>(op.residual), *dy = op.dy.data<T>(), *x = op.x.data<T>();
    parallel_for(blocks.count, 1, [=](int64_t first, int64_t last) {
      for (int64_t block = first; block < last; ++block) {
        const int64_t row = blocks.begin(block), at = row * n;
        A* dw = sums != nullptr ? sums + block * n : nullptr;
        if (dw != nullptr) std::fill(dw, dw + n, A(0));
        run(Backward<T>{dx != nullptr ? dx + at : nullptr,
                        residual != nullptr ? residual + at : nullptr, dy + at, x + at, r + row, w,
                        dw, blocks.end(block) - row, n});
      }
    });
    if (w != nullptr) add_blocks<A>(op.dw, sums, blocks.count, n);
  });
}

}  // namespace anabranch::cpu
