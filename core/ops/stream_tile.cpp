#include "core/ops/stream_tile.h"

#include "core/base/build.h"
#include "core/ops/vec_math.h"

namespace anabranch::cpu {
namespace {

template <bool kAdd, class To, class From>
[[gnu::always_inline]] inline void scale_rows(Scaled<To, From> k) {
  using A = Accumulator<From>;
  for (int64_t r = 0; r < k.rows; ++r) {
    const A g = k.g[r * k.stride];
    To* y = k.y + r * k.n;
    const From* x = k.x + r * k.n;
#pragma GCC ivdep
    for (int64_t c = 0; c < k.n; ++c) y[c] = To((kAdd ? A(y[c]) : A(0)) + g * A(x[c]));
  }
}

template <class X, class Y>
[[gnu::always_inline]] inline void add_row_dots(Dots<X, Y> k) {
  using A = Accumulator<X>;
  for (int64_t r = 0; r < k.rows; ++r) {
    const X* x = k.x + r * k.x_step;
    const Y* y = k.y + r * k.y_step;
    k.out[r * k.stride] += lane_sum<A>(k.n, [=](int64_t c) { return A(x[c]) * A(y[c]); });
  }
}

}  // namespace

AB_CLONES void scale(Scaled<float, float> k) { scale_rows<false>(k); }

AB_CLONES void scale(Scaled<Bf16, Bf16> k) { scale_rows<false>(k); }

void scale(Scaled<double, double> k) { scale_rows<false>(k); }

AB_CLONES void add_scaled(Scaled<float, float> k) { scale_rows<true>(k); }

AB_CLONES void add_scaled(Scaled<float, Bf16> k) { scale_rows<true>(k); }

AB_CLONES void add_scaled(Scaled<Bf16, float> k) { scale_rows<true>(k); }

void add_scaled(Scaled<double, double> k) { scale_rows<true>(k); }

AB_CLONES void add_dots(Dots<float, float> k) { add_row_dots(k); }

AB_CLONES void add_dots(Dots<float, Bf16> k) { add_row_dots(k); }

void add_dots(Dots<double, double> k) { add_row_dots(k); }

AB_CLONES void add_dots(Dots<Bf16, float> k) { add_row_dots(k); }

}  // namespace anabranch::cpu
