// A tile of rows of a mixture of streams, and the row kernels that its ops share.
#pragma once

#include <algorithm>

#include "core/base/parallel_for.h"
#include "core/ops/gemm.h"

namespace anabranch::cpu {

// Rows of a tile: enough for a product to run at full speed, few enough for sums of a backward to
// stay near. The forward has fewer of them and gains from more rows.
inline constexpr int64_t kStreamRows = 1024, kStreamForwardRows = 2048;

// y[r] (+)= g[r * stride] x[r] for rows of n elements.
template <class To, class From>
struct Scaled {
  To* y;
  const From* x;
  const Accumulator<From>* g;
  int64_t stride, rows, n;
};

// Instantiated by overloads: y = g x, and y += g x.
void scale(Scaled<float, float> k);
void scale(Scaled<Bf16, Bf16> k);
void scale(Scaled<double, double> k);
void add_scaled(Scaled<float, float> k);
void add_scaled(Scaled<float, Bf16> k);
void add_scaled(Scaled<Bf16, float> k);
void add_scaled(Scaled<double, double> k);

// sum_c x[c] y[c] of each row, added to out[r * stride].
template <class X, class Y>
struct Dots {
  Accumulator<X>* out;
  const X* x;
  const Y* y;
  int64_t x_step, y_step, stride, rows, n;  // a step of 0: the same row each time
};

void add_dots(Dots<float, float> k);
void add_dots(Dots<float, Bf16> k);
void add_dots(Dots<Bf16, float> k);
void add_dots(Dots<double, double> k);

// What a tile of rows sees of the op.
template <class T>
struct Tile {
  using A = Accumulator<T>;
  int64_t first, rows, C, F, N;
  const T* s;  // [rows, C]
  const A* g;  // [rows, N]
  const T* w;  // [N, F, C]
  const A* b;  // [N, F]

  Tile(const Tensor& s_all, const Tensor& g_all, const Tensor& w_all, const Tensor& b_all,
       int64_t begin, int64_t most)
      : first(begin),
        rows(std::min(most, s_all.dim(0) - begin)),
        C(s_all.dim(1)),
        F(w_all.dim(1)),
        N(w_all.dim(0)),
        s(s_all.data<T>() + begin * C),
        g(g_all.data<A>() + begin * N),
        w(w_all.data<T>()),
        b(b_all.data<A>()) {}

  [[nodiscard]] const T* kernel(int64_t k) const { return w + k * F * C; }

  [[nodiscard]] const A* bias(int64_t k) const { return b + k * F; }

  // V (+)= x K_k^T
  void product(A* v, const T* x, int64_t k, bool accumulate) const {
    gemm<T, A>(v, x, kernel(k), {rows, F, C, false, true, accumulate});
  }
};

// Calls `body(begin, end)` over rows of a tile, on all threads.
template <class Body>
void over_rows(int64_t rows, const Body& body) {
  constexpr int64_t kGrain = 8;  // rows that are worth a thread's while
  parallel_for(rows, kGrain, body);
}

}  // namespace anabranch::cpu
