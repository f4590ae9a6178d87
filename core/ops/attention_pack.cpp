#include "core/ops/attention_pack.h"

#include <algorithm>
#include <utility>

#include "core/base/build.h"
#include "core/ops/attention_tile.h"
#include "core/tensor/dtype.h"

namespace anabranch::cpu {
namespace {

// A square of one vector by one vector, through which transposed moves go.
template <class A>
struct Square {
  static constexpr int64_t kSide = kVector<A>;
  alignas(64) A x[kSide][kSide];
};

[[gnu::always_inline]] inline void transpose(Square<double>& square) {
  for (int64_t i = 0; i < Square<double>::kSide; ++i) {
    for (int64_t j = 0; j < i; ++j) std::swap(square.x[i][j], square.x[j][i]);
  }
}

typedef float Lanes __attribute__((vector_size(64), may_alias));

// to = lane i of a, or where bit `kBit` of i is set the lane of b whose number lacks that bit; with
// kHigh, the same of the lanes whose numbers have it.
template <size_t kBit, bool kHigh, size_t... kLane>
[[gnu::always_inline]] inline void interleave(Lanes& to, const Lanes& a, const Lanes& b,
                                              std::index_sequence<kLane...> /*lanes*/) {
  to = __builtin_shufflevector(
      a, b, ((kLane & kBit) != 0 ? kLane + 16 - kBit : kLane) + (kHigh ? kBit : 0)...);
}

// Exchanges bit `kBit` of the row number with the same bit of the lane number.
template <size_t kBit>
[[gnu::always_inline]] inline void exchange(Square<float>& square) {
  constexpr std::make_index_sequence<16> kLanes;
#pragma GCC unroll 16
  for (size_t i = 0; i < 16; ++i) {
    if ((i & kBit) != 0) continue;
    Lanes& a = *reinterpret_cast<Lanes*>(square.x[i]);
    Lanes& b = *reinterpret_cast<Lanes*>(square.x[i + kBit]);
    const Lanes old = a;
    interleave<kBit, false>(a, old, b, kLanes);
    interleave<kBit, true>(b, old, b, kLanes);
  }
}

[[gnu::always_inline]] inline void transpose(Square<float>& square) {
  exchange<1>(square);
  exchange<2>(square);
  exchange<4>(square);
  exchange<8>(square);
}

template <class T>
[[gnu::always_inline]] inline void load_rows_of(Accumulator<T>* __restrict__ to, int64_t to_stride,
                                                const Rows<const T>& from, Accumulator<T> scale) {
  using A = Accumulator<T>;
  for (int64_t r = 0; r < from.rows; ++r) {
    const T* x = from.data + r * from.stride;
    A* y = to + r * to_stride;
    for (int64_t c = 0; c < from.width; ++c) y[c] = scale * static_cast<A>(x[c]);
    for (int64_t c = from.width; c < to_stride; ++c) y[c] = 0;
  }
}

template <class T>
[[gnu::always_inline]] inline void load_lanes_of(Accumulator<T>* __restrict__ to,
                                                 const Rows<const T>& from, Accumulator<T> scale) {
  using A = Accumulator<T>;
  constexpr int64_t kSide = kVector<A>;
  for (int64_t r = 0; r < kQueryTile<A>; r += kSide) {
    const int64_t rows = std::clamp<int64_t>(from.rows - r, 0, kSide);
    for (int64_t c = 0; c < from.width; c += kSide) {
      const int64_t columns = std::min(from.width - c, kSide);
      Square<A> square;
      if (rows < kSide || columns < kSide) square = {};
      for (int64_t i = 0; i < rows; ++i) {
        const T* x = from.data + (r + i) * from.stride + c;
        if (columns == kSide) {
          for (int64_t j = 0; j < kSide; ++j) square.x[i][j] = scale * static_cast<A>(x[j]);
        } else {
          for (int64_t j = 0; j < columns; ++j) square.x[i][j] = scale * static_cast<A>(x[j]);
        }
      }
      transpose(square);
      for (int64_t j = 0; j < columns; ++j) {
        std::copy_n(square.x[j], kSide, to + (c + j) * kQueryTile<A> + r);
      }
    }
  }
}

template <class T>
[[gnu::always_inline]] inline void store_row(T* __restrict__ y, const Accumulator<T>* x, int64_t n,
                                             bool accumulate) {
  if (accumulate) {
    for (int64_t c = 0; c < n; ++c) y[c] = T(static_cast<Accumulator<T>>(y[c]) + x[c]);
  } else {
    for (int64_t c = 0; c < n; ++c) y[c] = T(x[c]);
  }
}

template <class T>
[[gnu::always_inline]] inline void store_rows_of(const Rows<T>& to, const Accumulator<T>* from,
                                                 int64_t from_stride, bool accumulate) {
  for (int64_t r = 0; r < to.rows; ++r) {
    store_row(to.data + r * to.stride, from + r * from_stride, to.width, accumulate);
  }
}

template <class T>
[[gnu::always_inline]] inline void store_lanes_of(const Rows<T>& to, const Accumulator<T>* from,
                                                  bool accumulate) {
  using A = Accumulator<T>;
  constexpr int64_t kSide = kVector<A>;
  for (int64_t r = 0; r < to.rows; r += kSide) {
    for (int64_t c = 0; c < to.width; c += kSide) {
      const int64_t columns = std::min(to.width - c, kSide);
      Square<A> square;
      if (columns < kSide) square = {};
      for (int64_t j = 0; j < columns; ++j) {
        std::copy_n(from + (c + j) * kQueryTile<A> + r, kSide, square.x[j]);
      }
      transpose(square);
      for (int64_t i = 0; i < std::min(to.rows - r, kSide); ++i) {
        store_row(to.data + (r + i) * to.stride + c, square.x[i], columns, accumulate);
      }
    }
  }
}

template <class T>
[[gnu::always_inline]] inline void dot_rows_of(Accumulator<T>* to, const Rows<const T>& a,
                                               const Rows<const T>& b) {
  using A = Accumulator<T>;
  for (int64_t r = 0; r < a.rows; ++r) {
    const T* x = a.data + r * a.stride;
    const T* y = b.data + r * b.stride;
    A sums[kVector<A>] = {};  // a fixed order that vectorises
    int64_t c = 0;
    for (; c + kVector<A> <= a.width; c += kVector<A>) {
      for (int64_t i = 0; i < kVector<A>; ++i) {
        sums[i] += static_cast<A>(x[c + i]) * static_cast<A>(y[c + i]);
      }
    }
    for (int64_t i = 0; c < a.width; ++c, ++i) {
      sums[i] += static_cast<A>(x[c]) * static_cast<A>(y[c]);
    }
    A sum = 0;
    for (const A part : sums) sum += part;
    to[r] = sum;
  }
}

}  // namespace

AB_CLONES void load_rows(float* to, int64_t to_stride, const Rows<const float>& from, float scale) {
  load_rows_of<float>(to, to_stride, from, scale);
}

AB_CLONES void load_lanes(float* to, const Rows<const float>& from, float scale) {
  load_lanes_of<float>(to, from, scale);
}

AB_CLONES void store_rows(const Rows<float>& to, const float* from, int64_t from_stride,
                          bool accumulate) {
  store_rows_of<float>(to, from, from_stride, accumulate);
}

AB_CLONES void store_lanes(const Rows<float>& to, const float* from, bool accumulate) {
  store_lanes_of<float>(to, from, accumulate);
}

AB_CLONES void dot_rows(float* to, const Rows<const float>& a, const Rows<const float>& b) {
  dot_rows_of<float>(to, a, b);
}

AB_CLONES void load_rows(float* to, int64_t to_stride, const Rows<const Bf16>& from, float scale) {
  load_rows_of<Bf16>(to, to_stride, from, scale);
}

AB_CLONES void load_lanes(float* to, const Rows<const Bf16>& from, float scale) {
  load_lanes_of<Bf16>(to, from, scale);
}

AB_CLONES void store_rows(const Rows<Bf16>& to, const float* from, int64_t from_stride,
                          bool accumulate) {
  store_rows_of<Bf16>(to, from, from_stride, accumulate);
}

AB_CLONES void store_lanes(const Rows<Bf16>& to, const float* from, bool accumulate) {
  store_lanes_of<Bf16>(to, from, accumulate);
}

AB_CLONES void dot_rows(float* to, const Rows<const Bf16>& a, const Rows<const Bf16>& b) {
  dot_rows_of<Bf16>(to, a, b);
}

void load_rows(double* to, int64_t to_stride, const Rows<const double>& from, double scale) {
  load_rows_of<double>(to, to_stride, from, scale);
}

void load_lanes(double* to, const Rows<const double>& from, double scale) {
  load_lanes_of<double>(to, from, scale);
}

void store_rows(const Rows<double>& to, const double* from, int64_t from_stride, bool accumulate) {
  store_rows_of<double>(to, from, from_stride, accumulate);
}

void store_lanes(const Rows<double>& to, const double* from, bool accumulate) {
  store_lanes_of<double>(to, from, accumulate);
}

void dot_rows(double* to, const Rows<const double>& a, const Rows<const double>& b) {
  dot_rows_of<double>(to, a, b);
}

}  // namespace anabranch::cpu
