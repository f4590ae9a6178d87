#include "core/ops/attention_tile.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/base/build.h"

// Vectors are GCC's portable vector type, 64 bytes whatever the CPU: loops that the compiler
// vectorises by itself get 32-byte vectors in the AVX-512 clone. They pass by reference only, since
// how they pass by value depends on the CPU compiled for.

namespace anabranch::cpu {
namespace {

template <class A>
struct Simd;

template <>
struct Simd<float> {
  typedef float Vec __attribute__((vector_size(64), may_alias));
  typedef uint32_t Int __attribute__((vector_size(64), may_alias));
};

template <>
struct Simd<double> {
  typedef double Vec __attribute__((vector_size(64), may_alias));
  typedef uint64_t Int __attribute__((vector_size(64), may_alias));
};

template <class A>
using Vec = typename Simd<A>::Vec;

template <class A>
[[gnu::always_inline]] inline Vec<A>& at(A* x, int64_t vector) {
  return reinterpret_cast<Vec<A>*>(x)[vector];
}

template <class A>
[[gnu::always_inline]] inline const Vec<A>& at(const A* x, int64_t vector) {
  return reinterpret_cast<const Vec<A>*>(x)[vector];
}

// 6 x 4 vectors of sums, 4 of b and one of a fill the 32 registers of AVX-512.
constexpr int kStrip = 6;
constexpr int kPanel = 4;

// kRows rows of kVectors vectors of c, held in registers over the whole of k.
template <class A, bool kByRows, int kRows, int kVectors>
[[gnu::always_inline]] inline void strip(const Product<A>& p, const A* a, const A* b, A* c) {
  Vec<A> sums[kRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      sums[r][v] = p.accumulate ? at(c + r * p.c_stride, v) : Vec<A>{};
    }
  }
  for (int64_t k = 0; k < p.k; ++k) {
    Vec<A> row[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) row[v] = at(b + k * p.b_stride, v);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const A factor = kByRows ? a[r * p.a_stride + k] : a[k * p.a_stride + r];
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sums[r][v] += factor * row[v];
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) at(c + r * p.c_stride, v) = sums[r][v];
  }
}

template <class A, bool kByRows, int kVectors>
[[gnu::always_inline]] inline void panel(const Product<A>& p, const A* b, A* c) {
  const int64_t step = kByRows ? p.a_stride : 1;
  int64_t i = 0;
  for (; i + kStrip <= p.m; i += kStrip) {
    strip<A, kByRows, kStrip, kVectors>(p, p.a + i * step, b, c + i * p.c_stride);
  }
  if (i + 4 <= p.m) {
    strip<A, kByRows, 4, kVectors>(p, p.a + i * step, b, c + i * p.c_stride);
    i += 4;
  }
  for (; i < p.m; ++i) {
    strip<A, kByRows, 1, kVectors>(p, p.a + i * step, b, c + i * p.c_stride);
  }
}

template <class A, bool kByRows>
[[gnu::always_inline]] inline void multiply(const Product<A>& p) {
  for (int64_t n = 0; n < p.n; n += kPanel * kVector<A>) {
    const A* b = p.b + n;
    A* c = p.c + n;
    switch (std::min<int64_t>((p.n - n) / kVector<A>, kPanel)) {
      case 1:
        panel<A, kByRows, 1>(p, b, c);
        break;
      case 2:
        panel<A, kByRows, 2>(p, b, c);
        break;
      case 3:
        panel<A, kByRows, 3>(p, b, c);
        break;
      default:
        panel<A, kByRows, 4>(p, b, c);
    }
  }
}

// x = 2^x for x <= 128, within 2e-7 for float; below the smallest normal number it stays there.
// Coefficients: Cephes exp2f. A NaN stays a NaN.
[[gnu::always_inline]] inline void exp2_of(Vec<float>& x) {
  x = x < -126.0F ? Vec<float>{} - 126.0F : x;
  const Vec<float> shifted = x + 12582912.0F;  // 1.5 * 2^23: the integer part in the low bits
  const Vec<float> r = x - (shifted - 12582912.0F);
  Vec<float> p = r * 1.535336188319500e-4F + 1.339887440266574e-3F;
  p = p * r + 9.618437357674640e-3F;
  p = p * r + 5.550332471162809e-2F;
  p = p * r + 2.402264791363012e-1F;
  p = p * r + 6.931472028550421e-1F;
  p = p * r + 1.0F;
  Simd<float>::Int bits;
  std::memcpy(&bits, &shifted, sizeof bits);
  bits = (bits << 23U) + 0x3F800000U;
  Vec<float> power;
  std::memcpy(&power, &bits, sizeof power);
  x = p * power;
}

[[gnu::always_inline]] inline void exp2_of(Vec<double>& x) {
  for (int i = 0; i < kVector<double>; ++i) x[i] = std::exp2(x[i]);
}

template <class A>
struct LaneNumbers {
  alignas(64) A values[kQueryTile<A>];

  constexpr LaneNumbers() : values() {
    for (int i = 0; i < kQueryTile<A>; ++i) values[i] = static_cast<A>(i);
  }
};

template <class A>
inline constexpr LaneNumbers<A> kLaneNumbers;

// Whether a tile has bounds is known at compile time below: the loops without them are the hotter,
// and stay as they would be alone. With them it has both.

// Sets x to `hidden` in the lanes that do not see key j.
template <bool kBounded, class A>
[[gnu::always_inline]] inline void hide(Vec<A>& x, const Scores<A>& tile, int64_t v, int64_t j,
                                        A hidden) {
  const Vec<A> key = Vec<A>{} + static_cast<A>(j + tile.offset);
  if constexpr (kBounded) {
    // One comparison: of two that are joined GCC makes a comparison for each lane.
    Vec<A> outside = key - at(tile.last, v);
    const Vec<A> early = at(tile.first, v) - key;
    outside = early > outside ? early : outside;
    x = outside <= 0 ? x : Vec<A>{} + hidden;
  } else {
    x = at(kLaneNumbers<A>.values, v) >= key ? x : Vec<A>{} + hidden;
  }
}

// The keys of a tile as one vector of lanes sees them: none before `begin`, all lanes those of
// `whole` .. `full` - 1, some lanes the others.
struct Seen {
  int64_t begin, whole, full;
};

template <bool kBounded, class A>
[[gnu::always_inline]] inline Seen seen_by(const Scores<A>& tile, int64_t v) {
  const auto key = [&](A bound) {
    return std::clamp<int64_t>(static_cast<int64_t>(bound) - tile.offset, 0, tile.keys);
  };
  if constexpr (kBounded) {
    const A* const first = tile.first + v * kVector<A>;
    return {key(first[0]), key(first[kVector<A> - 1]), key(tile.last[0] + 1)};
  }
  return {0, 0, key(1)};
}

template <bool kBounded, class A>
[[gnu::always_inline]] inline void maxima(const Scores<A>& tile, int64_t v, const Seen& seen,
                                          Vec<A>& max) {
  constexpr int64_t kRow = kQueryTile<A>;
  const int64_t full = seen.full;
  Vec<A> other[4] = {max, max, max, max};  // independent chains hide the latency
  int64_t j = seen.begin;
  for (; j < seen.whole; ++j) {
    Vec<A> s = at(tile.s + j * kRow, v);
    hide<kBounded, A>(s, tile, v, j, -std::numeric_limits<A>::infinity());
    max = s > max ? s : max;
  }
  for (; j + 4 <= full; j += 4) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const Vec<A>& s = at(tile.s + (j + i) * kRow, v);
      other[i] = s > other[i] ? s : other[i];
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) max = other[i] > max ? other[i] : max;
  for (; j < full; ++j) {
    const Vec<A>& s = at(tile.s + j * kRow, v);
    max = s > max ? s : max;
  }
  for (; j < tile.keys; ++j) {
    Vec<A> s = at(tile.s + j * kRow, v);
    hide<kBounded, A>(s, tile, v, j, -std::numeric_limits<A>::infinity());
    max = s > max ? s : max;
  }
}

// s = 2^(s - max), 0 where key j is not seen.
template <bool kBounded, class A>
[[gnu::always_inline]] inline void weigh_edge(const Scores<A>& tile, int64_t v, int64_t j,
                                              const Vec<A>& max, Vec<A>& sum) {
  Vec<A>& s = at(tile.s + j * kQueryTile<A>, v);
  Vec<A> p = s - max;
  exp2_of(p);
  hide<kBounded, A>(p, tile, v, j, 0);
  s = p;
  sum += p;
}

template <bool kBounded, class A>
[[gnu::always_inline]] inline bool softmax_tile(const Scores<A>& tile, A* m, A* l, A* alpha) {
  constexpr int64_t kRow = kQueryTile<A>;
  bool changed = false;
  for (int64_t v = 0; v < tile.lanes / kVector<A>; ++v) {
    const Seen seen = seen_by<kBounded>(tile, v);
    const Vec<A> old = at(m, v);
    Vec<A> max = old;
    maxima<kBounded>(tile, v, seen, max);
    // Both are -infinity in a lane that has seen no key yet.
    Vec<A> factor = old == max ? Vec<A>{} : old - max;
    for (int i = 0; i < kVector<A>; ++i) changed = changed || max[i] != old[i];
    exp2_of(factor);
    Vec<A> sums[2] = {at(l, v) * factor, Vec<A>{}};
    int64_t j = 0;
    if constexpr (kBounded) {
      for (; j < seen.begin; ++j) at(tile.s + j * kRow, v) = Vec<A>{};
      for (; j < seen.whole; ++j) weigh_edge<kBounded>(tile, v, j, max, sums[0]);
    }
    for (; j + 2 <= seen.full; j += 2) {
#pragma GCC unroll 2
      for (int i = 0; i < 2; ++i) {
        Vec<A>& s = at(tile.s + (j + i) * kRow, v);
        Vec<A> p = s - max;
        exp2_of(p);
        s = p;
        sums[i] += p;
      }
    }
    for (; j < tile.keys; ++j) weigh_edge<kBounded>(tile, v, j, max, sums[0]);
    at(m, v) = max;
    at(alpha, v) = factor;
    at(l, v) = sums[0] + sums[1];
  }
  return changed;
}

template <bool kBounded, class A>
[[gnu::always_inline]] inline void gradient_tile(const Scores<A>& tile, A* dp, const A* lse,
                                                 const A* delta) {
  constexpr int64_t kRow = kQueryTile<A>;
  const int64_t vectors = tile.lanes / kVector<A>;
  const int64_t full = seen_by<kBounded>(tile, 0).full;
  const int64_t whole = seen_by<kBounded>(tile, vectors - 1).whole;
  int64_t seeing = kBounded ? 0 : vectors;
  for (int64_t j = 0; j < tile.keys; ++j) {
    if constexpr (kBounded) {
      const auto key = static_cast<A>(j + tile.offset);
      while (seeing < vectors && tile.first[seeing * kVector<A>] <= key) ++seeing;
      for (int64_t v = seeing; v < vectors; ++v) {
        at(tile.s + j * kRow, v) = at(dp + j * kRow, v) = Vec<A>{};
      }
    }
    for (int64_t v = 0; v < seeing; ++v) {
      Vec<A>& s = at(tile.s + j * kRow, v);
      Vec<A>& d = at(dp + j * kRow, v);
      Vec<A> p = s - at(lse, v);
      exp2_of(p);
      Vec<A> ds = p * (d - at(delta, v));
      if (j >= full || (kBounded && j < whole)) {
        hide<kBounded, A>(p, tile, v, j, 0);
        hide<kBounded, A>(ds, tile, v, j, 0);
      }
      s = p;
      d = ds;
    }
  }
}

// `tile` with both bounds.
template <class A>
Scores<A> bounded(Scores<A> tile) {
  if (tile.last == nullptr) tile.last = kLaneNumbers<A>.values;
  return tile;
}

template <class A>
[[gnu::always_inline]] inline void scale_tile(A* x, int64_t rows, int64_t lanes, const A* scale) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t v = 0; v < lanes / kVector<A>; ++v) at(x + r * kQueryTile<A>, v) *= at(scale, v);
  }
}

}  // namespace

AB_CLONES void multiply_rows(const Product<float>& p) { multiply<float, true>(p); }

AB_CLONES void multiply_columns(const Product<float>& p) { multiply<float, false>(p); }

AB_CLONES bool softmax_step(const Scores<float>& tile, float* m, float* l, float* alpha) {
  return tile.first == nullptr ? softmax_tile<false>(tile, m, l, alpha)
                               : softmax_tile<true>(bounded(tile), m, l, alpha);
}

AB_CLONES void softmax_gradient(const Scores<float>& tile, float* dp, const float* lse,
                                const float* delta) {
  if (tile.first == nullptr) {
    gradient_tile<false>(tile, dp, lse, delta);
  } else {
    gradient_tile<true>(bounded(tile), dp, lse, delta);
  }
}

AB_CLONES void scale_lanes(float* x, int64_t rows, int64_t lanes, const float* scale) {
  scale_tile(x, rows, lanes, scale);
}

AB_CLONES void multiply_rows(const Product<double>& p) { multiply<double, true>(p); }

AB_CLONES void multiply_columns(const Product<double>& p) { multiply<double, false>(p); }

bool softmax_step(const Scores<double>& tile, double* m, double* l, double* alpha) {
  return tile.first == nullptr ? softmax_tile<false>(tile, m, l, alpha)
                               : softmax_tile<true>(bounded(tile), m, l, alpha);
}

void softmax_gradient(const Scores<double>& tile, double* dp, const double* lse,
                      const double* delta) {
  if (tile.first == nullptr) {
    gradient_tile<false>(tile, dp, lse, delta);
  } else {
    gradient_tile<true>(bounded(tile), dp, lse, delta);
  }
}

void scale_lanes(double* x, int64_t rows, int64_t lanes, const double* scale) {
  scale_tile(x, rows, lanes, scale);
}

}  // namespace anabranch::cpu
