#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <type_traits>
#include <vector>

#include "core/base/build.h"
#include "core/base/parallel_for.h"
#include "core/ops/kappa_swiglu.h"
#include "core/ops/vec_math.h"

namespace anabranch::cpu {
namespace {

constexpr int64_t kTileRows = 64;
constexpr int64_t kStrip = 256;  // columns
constexpr double kLog2E = 1.4426950408889634;

// Past it 1 / (1 + 2^y) is 0 or 1. A field rather than a constant: the compiler would give values
// that are cut off there a branch of their own, which makes the vector code a third longer.
struct Limit {
  float value = 126;
};

// 1 / (1 + 2^y), within 1.5e-7 of the true value relative to it, and 2^y. A NaN gives NaN.
[[gnu::always_inline]] inline float logistic2(float y, float limit, float& power) {
  constexpr float kRound = 12582912.0F;  // 1.5 * 2^23: adding it leaves an integer in the low bits
  const float below = y > limit ? limit : y;
  const float inside = below < -limit ? -limit : below;
  const float shifted = inside + kRound;
  const float f = inside - (shifted - kRound);
  float p = 1.3333558146e-3F;
  p = p * f + 9.6181291918e-3F;
  p = p * f + 5.5504108665e-2F;
  p = p * f + 2.4022650696e-1F;
  p = p * f + 6.9314718056e-1F;
  p = p * f + 1.0F;
  power =
      std::bit_cast<float>(std::bit_cast<uint32_t>(p) + (std::bit_cast<uint32_t>(shifted) << 23U));
  return 1.0F / (1.0F + power);
}

[[gnu::always_inline]] inline double logistic2(double y, float, double& power) {
  power = std::exp2(y > 1000 ? 1000 : y);
  return 1.0 / (1.0 + power);
}

// sqrt(U^(2r - 1)) for 0 <= r <= 1: its Chebyshev series, cut off where the terms are below 1e-7 of
// it for U <= 5, and written in powers of r (whose factors are positive: no digits cancel).
template <class A>
struct RootPower {
  static constexpr int kDegree = 7;
  std::array<A, kDegree + 1> c{};
  double half_log = 0;

  explicit RootPower(double upper) : half_log(std::log(upper) / 2) {
    std::array<double, kDegree + 1> before{1}, now{-1, 2}, sum{};
    for (int n = 0; n <= kDegree; ++n) {
      const double weight = (n == 0 ? 1 : 2) * bessel(n);
      std::array<double, kDegree + 1> next{};  // T(n+1) = 2 (2r - 1) T(n) - T(n-1)
      for (size_t i = 0; i <= kDegree; ++i) {
        sum[i] += weight * before[i];
        next[i] = (i > 0 ? 4 * now[i - 1] : 0) - 2 * now[i] - before[i];
      }
      before = now;
      now = next;
    }
    std::transform(sum.begin(), sum.end(), c.begin(), [](double v) { return static_cast<A>(v); });
  }

  // The modified Bessel function I_n at half_log, by its power series.
  [[nodiscard]] double bessel(int n) const {
    double term = 1, sum = 0;
    for (int i = 1; i <= n; ++i) term *= half_log / 2 / i;
    for (int i = 1; i < 20; ++i) {
      sum += term;
      term *= half_log * half_log / 4 / (i * (i + n));
    }
    return sum;
  }
};

[[gnu::always_inline]] inline float root_power(const RootPower<float>& f, float r) {
  float p = f.c[7];
  for (size_t i = 7; i-- > 0;) p = p * r + f.c[i];
  return p;
}

[[gnu::always_inline]] inline double root_power(const RootPower<double>& f, double r) {
  return std::exp(f.half_log * (2 * r - 1));
}

// One row of a tile, or one after the other all of them.
template <class T, class A = Accumulator<T>>
struct Rows {
  int64_t rows, width;
  const T* x;                   // [rows, 2 width]
  const A* score;               // [rows], or null
  const A *alpha, *b;           // [width] of the tile's expert
  A score_factor, bias_factor;  // from score * alpha and b to -2 t / ln 2
  RootPower<A> root;
  Limit limit{};
};

template <class T, class A = Accumulator<T>>
struct Gradients {
  T* dx;
  const T* dh;
  A *dscore, *dalpha, *db;  // [rows], and [width] sums of this tile
  A slope;                  // 4 ln U
  A dscore_factor, bias_scale, score_scale;
  bool add_dx, add_dscore;
};

// Asks for the columns two strips on, of `rows` whose first row is at `at`: the steps of a strip
// leave the memory idle for longer than its own look-ahead bridges.
template <int kWrite, class T>
[[gnu::always_inline]] inline void fetch_ahead(const T* at, int64_t row_step, int64_t row,
                                               int64_t first, int64_t width) {
  first += 2 * kStrip;
  if (first >= width) {
    first -= width;
    ++row;
  }
  const char* from = reinterpret_cast<const char*>(at + row * row_step + first);
  for (int64_t byte = 0; byte < kStrip * static_cast<int64_t>(sizeof(T)); byte += 64) {
    __builtin_prefetch(from + byte, kWrite);
  }
}

// kappa of some columns of a row, and (1 - tanh^2 t) / 4.
template <class A>
struct Strip {
  A r[kStrip], flat[kStrip], kappa[kStrip], s[kStrip], power[kStrip];
};

// The strip is worked on in steps of a few dependent operations each: a processor looks ahead over
// some hundred instructions only, too few for two columns if each column is one chain.
template <class T, class A>
[[gnu::always_inline]] inline void open_gates(const Rows<T, A>& k, int64_t row, int64_t first,
                                              int64_t n, Strip<A>& to) {
  const T* gate = k.x + 2 * row * k.width + first;
  const A *alpha = k.alpha + first, *b = k.b + first;
  const A score = k.score != nullptr ? k.score[row] * k.score_factor : A(0);
  const A bias_factor = k.bias_factor, to_log2 = A(-kLog2E);
  const float limit = k.limit.value;
  const RootPower<A> root = k.root;
  for (int64_t j = 0; j < n; ++j) {
    A power;
    const A r = logistic2(score * alpha[j] + bias_factor * b[j], limit, power);
    to.r[j] = r;
    to.flat[j] = power * r * r;
  }
  for (int64_t j = 0; j < n; ++j) {
    const A half = root_power(root, to.r[j]);
    to.kappa[j] = half * half;
  }
  for (int64_t j = 0; j < n; ++j) {
    A power;
    to.s[j] = logistic2(to.kappa[j] * (A(gate[j]) * to_log2), limit, power);
    to.power[j] = power;
  }
}

template <class T, class A>
[[gnu::always_inline]] inline void forward_rows(const Rows<T, A>& k, T* out) {
  Strip<A> strip;
  for (int64_t row = 0; row < k.rows; ++row) {
    for (int64_t first = 0; first < k.width; first += kStrip) {
      const int64_t n = std::min(kStrip, k.width - first);
      const T *gate = k.x + 2 * row * k.width + first, *up = gate + k.width;
      T* h = out + row * k.width + first;
      fetch_ahead<0>(k.x, 2 * k.width, row, first, k.width);
      fetch_ahead<0>(k.x + k.width, 2 * k.width, row, first, k.width);
      fetch_ahead<1>(out, k.width, row, first, k.width);
      open_gates(k, row, first, n, strip);
      for (int64_t j = 0; j < n; ++j) h[j] = T(A(gate[j]) * strip.s[j] * A(up[j]));
    }
  }
}

template <class T, class A, bool kAdd>
[[gnu::always_inline]] inline void backward_rows(const Rows<T, A>& k, const Gradients<T, A>& g) {
  std::fill(g.dalpha, g.dalpha + k.width, A(0));
  std::fill(g.db, g.db + k.width, A(0));
  Strip<A> strip;
  for (int64_t row = 0; row < k.rows; ++row) {
    const A score = k.score != nullptr ? k.score[row] : A(0), slope = g.slope;
    A sum = 0;
    for (int64_t first = 0; first < k.width; first += kStrip) {
      const int64_t n = std::min(kStrip, k.width - first);
      const T *gate = k.x + 2 * row * k.width + first, *up = gate + k.width;
      const T* dh = g.dh + row * k.width + first;
      T *dgate = g.dx + 2 * row * k.width + first, *dup = dgate + k.width;
      const A* alpha = k.alpha + first;
      A *dalpha = g.dalpha + first, *db = g.db + first, *dt = strip.r;
      fetch_ahead<0>(k.x, 2 * k.width, row, first, k.width);
      fetch_ahead<0>(k.x + k.width, 2 * k.width, row, first, k.width);
      fetch_ahead<0>(g.dh, k.width, row, first, k.width);
      fetch_ahead<1>(g.dx, 2 * k.width, row, first, k.width);
      fetch_ahead<1>(g.dx + k.width, 2 * k.width, row, first, k.width);
      open_gates(k, row, first, n, strip);
#pragma GCC ivdep
      for (int64_t j = 0; j < n; ++j) {
        const A z = A(gate[j]), s = strip.s[j], d = A(dh[j]), du = d * A(up[j]);
        const A q = strip.kappa[j] * z * (strip.power[j] * s * s);
        const A to_gate = du * (s + q), to_up = d * (z * s);
        dt[j] = du * z * q * (strip.flat[j] * slope);
        dgate[j] = T(kAdd ? A(dgate[j]) + to_gate : to_gate);
        dup[j] = T(kAdd ? A(dup[j]) + to_up : to_up);
      }
#pragma GCC ivdep
      for (int64_t j = 0; j < n; ++j) {
        dalpha[j] += dt[j] * score;
        db[j] += dt[j];
      }
      sum += lane_sum<A>(n, [=](int64_t j) { return dt[j] * alpha[j]; });
    }
    if (g.dscore != nullptr) {
      g.dscore[row] = (g.add_dscore ? g.dscore[row] : A(0)) + g.dscore_factor * sum;
    }
  }
  for (int64_t j = 0; j < k.width; ++j) {
    g.dalpha[j] *= g.score_scale;
    g.db[j] *= g.bias_scale;
  }
}

template <class T, class A>
[[gnu::always_inline]] inline void backward_rows_any(const Rows<T, A>& k,
                                                     const Gradients<T, A>& g) {
  if (g.add_dx) return backward_rows<T, A, true>(k, g);
  backward_rows<T, A, false>(k, g);
}

AB_CLONES void run(const Rows<float>& k, float* h) { forward_rows(k, h); }

AB_CLONES void run(const Rows<Bf16>& k, Bf16* h) { forward_rows(k, h); }

void run(const Rows<double>& k, double* h) { forward_rows(k, h); }

AB_CLONES void run(const Rows<float>& k, const Gradients<float>& g) { backward_rows_any(k, g); }

AB_CLONES void run(const Rows<Bf16>& k, const Gradients<Bf16>& g) { backward_rows_any(k, g); }

void run(const Rows<double>& k, const Gradients<double>& g) { backward_rows_any(k, g); }

// The inputs of all tiles.
template <class T, class A = Accumulator<T>>
class Source {
 public:
  explicit Source(const KappaInputs& in)
      : width_(in.x.dim(1) / 2),
        x_(in.x.data<T>()),
        score_(in.score != nullptr ? in.score->template data<A>() : nullptr),
        alpha_(in.alpha != nullptr ? in.alpha->template data<A>() : nullptr),
        b_(in.b != nullptr ? in.b->template data<A>() : nullptr),
        zeros_(static_cast<size_t>(width_)),
        all_{0,
             width_,
             nullptr,
             nullptr,
             nullptr,
             nullptr,
             A(-2 * kLog2E * in.kappa.score_scale),
             A(-2 * kLog2E * in.kappa.bias_scale),
             RootPower<A>(in.kappa.upper)} {}

  [[nodiscard]] Rows<T> rows(const RowTile& tile) const {
    Rows<T> k = all_;
    k.rows = tile.end - tile.begin;
    k.x = x_ + tile.begin * 2 * width_;
    k.score = score_ != nullptr ? score_ + tile.begin : nullptr;
    k.alpha = alpha_ != nullptr ? alpha_ + tile.group * width_ : zeros_.data();
    k.b = b_ != nullptr ? b_ + tile.group * width_ : zeros_.data();
    return k;
  }

 private:
  int64_t width_;
  const T* x_;
  const A *score_, *alpha_, *b_;
  std::vector<A> zeros_;
  Rows<T> all_;
};

// to[e] (+)= the sums of the tiles of expert e, in their order.
template <class A>
void add_tiles(GradSink* to, const A* sums, const std::vector<RowTile>& tiles) {
  if (to == nullptr) return;
  constexpr int64_t kGrain = 512;
  const int64_t width = to->out.dim(1);
  A* out = to->out.data<A>();
  const bool accumulate = to->accumulate;
  parallel_for(width, kGrain, [&](int64_t begin, int64_t end) {
    if (!accumulate) {
      for (int64_t e = 0; e < to->out.dim(0); ++e) {
        std::fill(out + e * width + begin, out + e * width + end, A(0));
      }
    }
    for (size_t i = 0; i < tiles.size(); ++i) {
      A* row = out + tiles[i].group * width;
      const A* from = sums + 2 * static_cast<int64_t>(i) * width;
      for (int64_t j = begin; j < end; ++j) row[j] += from[j];
    }
  });
}

}  // namespace

void kappa_swiglu_forward(Tensor& h, const KappaInputs& in) {
  dispatch(in.x.dtype(), [&]<class T>() {
    const Source<T> source(in);
    const std::vector<RowTile> tiles = row_tiles(in.groups, kTileRows);
    T* to = h.data<T>();
    for_tiles(tiles, [&](int64_t i) {
      const RowTile& tile = tiles[static_cast<size_t>(i)];
      run(source.rows(tile), to + tile.begin * h.dim(1));
    });
  });
}

void kappa_swiglu_backward(const KappaSinks& out, const Tensor& dh, const KappaInputs& in) {
  const int64_t width = dh.dim(1);
  dispatch(in.x.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    const Source<T> source(in);
    const std::vector<RowTile> tiles = row_tiles(in.groups, kTileRows);
    Tensor partials = dh.like({std::ssize(tiles), 2, width}, kDTypeOf<A>, "partial sums");
    Tensor unused;
    if (out.dx == nullptr) unused = in.x.like("gradient");
    T* dx = (out.dx != nullptr ? out.dx->out : unused).template data<T>();
    A* sums = partials.data<A>();
    A* dscore = out.dscore != nullptr ? out.dscore->out.data<A>() : nullptr;
    const Kappa& kappa = in.kappa;
    for_tiles(tiles, [&](int64_t i) {
      const RowTile& tile = tiles[static_cast<size_t>(i)];
      A* mine = sums + 2 * i * width;
      run(source.rows(tile),
          Gradients<T>{dx + tile.begin * 2 * width, dh.data<T>() + tile.begin * width,
                       dscore != nullptr ? dscore + tile.begin : nullptr, mine, mine + width,
                       A(4 * std::log(kappa.upper)), A(kappa.router_grad_scale * kappa.score_scale),
                       A(kappa.bias_scale), A(kappa.score_scale),
                       out.dx != nullptr && out.dx->accumulate,
                       out.dscore != nullptr && out.dscore->accumulate});
    });
    add_tiles(out.dalpha, sums, tiles);
    add_tiles(out.db, sums + width, tiles);
  });
}

}  // namespace anabranch::cpu
