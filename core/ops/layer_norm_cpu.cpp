#include <cmath>

#include "core/base/build.h"
#include "core/ops/layer_norm.h"
#include "core/ops/row_blocks.h"
#include "core/ops/vec_math.h"

namespace anabranch::cpu {
namespace {

// The pointers of some rows, so that the kernels below are compiled for several CPUs by type.
template <class T>
struct Forward {
  T *y, *sum;  // sum: null without delta
  Accumulator<T>* stats;
  const T *x, *delta;
  const Accumulator<T>*w, *b;
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
    const A mean = lane_sum<A>(n, [x](int64_t c) { return A(x[c]); }) / static_cast<A>(n);
    const auto square = [x, mean](int64_t c) {
      const A centred = A(x[c]) - mean;
      return centred * centred;
    };
    const A variance = lane_sum<A>(n, square) / static_cast<A>(n);
    const A r = A(1) / std::sqrt(variance + k.eps);
#pragma GCC ivdep
    for (int64_t c = 0; c < n; ++c) y[c] = T((A(x[c]) - mean) * r * k.w[c] + k.b[c]);
    k.stats[2 * row] = mean;
    k.stats[2 * row + 1] = r;
  }
}

template <class T>
struct Backward {
  T* dx;              // null if not wanted
  const T* residual;  // null, or added to dx; may be dx
  const T *dy, *x;
  const Accumulator<T>*stats, *w;
  Accumulator<T>*dw, *db;  // sums of these rows, added to
  int64_t rows, width;
};

template <class A>
struct Means {
  A g, gh;
};

// dw += dy h and db += dy; gives mean(g) and mean(g h).
template <class T, class A = Accumulator<T>>
[[gnu::always_inline]] inline Means<A> reduce_row(const Backward<T>& k, const T* dy, const T* x,
                                                  A mean, A r) {
  constexpr int64_t kLanes = 64;
  A g_lanes[kLanes] = {}, gh_lanes[kLanes] = {};
  A *dw = k.dw, *db = k.db;
  const A* w = k.w;
  const auto step = [&](int64_t c, int64_t j) __attribute__((always_inline)) {
    const A d = A(dy[c]), h = (A(x[c]) - mean) * r, g = d * w[c];
    dw[c] += d * h;
    db[c] += d;
    g_lanes[j] += g;
    gh_lanes[j] += g * h;
  };
  const int64_t n = k.width;
  int64_t c = 0;
  for (; c + kLanes <= n; c += kLanes) {
#pragma GCC ivdep
    for (int64_t j = 0; j < kLanes; ++j) step(c + j, j);
  }
  for (int64_t j = 0; c + j < n; ++j) step(c + j, j);
  const auto mean_of = [n](const A* lanes) {
    return lane_sum<A>(kLanes, [lanes](int64_t j) { return lanes[j]; }) / static_cast<A>(n);
  };
  return {mean_of(g_lanes), mean_of(gh_lanes)};
}

template <class T>
[[gnu::always_inline]] inline void backward_rows(Backward<T> k) {
  using A = Accumulator<T>;
  const int64_t n = k.width;
  for (int64_t row = 0; row < k.rows; ++row) {
    const T *dy = k.dy + row * n, *x = k.x + row * n;
    const A mean = k.stats[2 * row], r = k.stats[2 * row + 1];
    const Means<A> means = reduce_row(k, dy, x, mean, r);
    if (k.dx == nullptr) continue;
    const auto gradient = [=, w = k.w](int64_t c) {
      return r * (A(dy[c]) * w[c] - means.g - (A(x[c]) - mean) * r * means.gh);
    };
    T* dx = k.dx + row * n;
    if (k.residual == nullptr) {
#pragma GCC ivdep
      for (int64_t c = 0; c < n; ++c) dx[c] = T(gradient(c));
    } else {
      const T* residual = k.residual + row * n;
#pragma GCC ivdep
      for (int64_t c = 0; c < n; ++c) dx[c] = T(A(residual[c]) + gradient(c));
    }
  }
}

AB_CLONES void run(Forward<float> k) { forward_rows(k); }

AB_CLONES void run(Forward<Bf16> k) { forward_rows(k); }

void run(Forward<double> k) { forward_rows(k); }

AB_CLONES void run(Backward<float> k) { backward_rows(k); }

AB_CLONES void run(Backward<Bf16> k) { backward_rows(k); }

void run(Backward<double> k) { backward_rows(k); }

template <class T>
const T* data_or_null(const Tensor& t) {
  return t.empty() ? nullptr : t.data<T>();
}

}  // namespace

void layer_norm_forward(LayerNormForward& op) {
  dispatch(op.x.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    const int64_t rows = op.stats.dim(0), n = op.x.dim(-1);
    T *y = op.y.data<T>(), *sum = op.sum.empty() ? nullptr : op.sum.data<T>();
    const T *x = op.x.data<T>(), *delta = data_or_null<T>(op.delta);
    A* stats = op.stats.data<A>();
    const A *w = op.w.data<A>(), *b = op.b.data<A>(), eps = static_cast<A>(op.eps);
    const int64_t grain = std::max<int64_t>(1, (1 << 14) / std::max<int64_t>(n, 1));
    parallel_for(rows, grain, [=](int64_t begin, int64_t end) {
      const int64_t at = begin * n;
      run(Forward<T>{y + at, sum != nullptr ? sum + at : nullptr, stats + 2 * begin, x + at,
                     delta != nullptr ? delta + at : nullptr, w, b, end - begin, n, eps});
    });
  });
}

void layer_norm_backward(LayerNormBackward& op) {
  dispatch(op.x.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    const int64_t n = op.x.dim(-1);
    const RowBlocks blocks(op.stats.dim(0));
    Tensor partials =
        op.x.like({blocks.count, 2, n}, accumulator_of(op.x.dtype()), "layer_norm_partials");
    A* sums = partials.data<A>();
    T* dx = op.dx.empty() ? nullptr : op.dx.data<T>();
    const T *residual = data_or_null<T>(op.residual), *dy = op.dy.data<T>(), *x = op.x.data<T>();
    const A *stats = op.stats.data<A>(), *w = op.w.data<A>();
    parallel_for(blocks.count, 1, [=](int64_t first, int64_t last) {
      for (int64_t block = first; block < last; ++block) {
        const int64_t row = blocks.begin(block), at = row * n;
        A* dw = sums + block * 2 * n;
        std::fill(dw, dw + 2 * n, A(0));
        run(Backward<T>{dx != nullptr ? dx + at : nullptr,
                        residual != nullptr ? residual + at : nullptr, dy + at, x + at,
                        stats + 2 * row, w, dw, dw + n, blocks.end(block) - row, n});
      }
    });
    add_blocks(op.dw, std::as_const(partials).data<A>(), blocks.count, 2 * n);
    add_blocks(op.db, std::as_const(partials).data<A>() + n, blocks.count, 2 * n);
  });
}

}  // namespace anabranch::cpu
