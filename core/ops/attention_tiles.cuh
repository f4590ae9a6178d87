// Attention by tiles: how they come to shared memory, and products of a warp's rows with them.
//
// A block has rows of one head (queries, or keys in the pass of their gradients), 16 or 32 of them
// for each warp; the rows that these meet go through shared memory in tiles, two in turn, the next
// one on its way while one is worked on. Scores and sums stay in registers.
#pragma once

#include <cmath>
#include <limits>
#include <numbers>

#include "core/ops/attention_call.cuh"
#include "core/ops/mma.cuh"

namespace anabranch::cuda {

// Whether there are tiled kernels for it; of double, wider ones do not fit into registers.
template <class T, int kWidth>
inline constexpr bool kHasTiles = sizeof(T) < 8 || kWidth <= 64;

// 2^x, as exact as sums of such need it: results below 2^-126 are 0.
__device__ __forceinline__ float power_of_2(float x) {
  if constexpr (kSimulated) {
    return std::exp2(x);
  } else {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
  }
}

__device__ __forceinline__ double power_of_2(double x) { return std::exp2(x); }

// Of a block; those of double have more registers each.
template <class T>
inline constexpr int kTileThreads = sizeof(T) == 8 ? 64 : 128;

// Rows of kWidth elements in shared memory, 16 bytes further apart, so that the rows of a tile lie
// in different banks.
template <class T, int kWidth>
inline constexpr int kRowStride = kWidth + kPack<T>;

// What ask_for_rows() does where rows may not be moved 16 bytes at a time; apart from it, as this
// would take the fast way's registers.
template <int kRows, int kWidth, class T>
__device__ __noinline__ void put_rows(T* to, const T* from, int64_t stride, int rows, int width) {
  for (int i = static_cast<int>(threadIdx.x); i < kRows * kWidth; i += kTileThreads<T>) {
    const int row = i / kWidth, column = i % kWidth;
    to[row * kRowStride<T, kWidth> + column] =
        row < rows && column < width ? from[row * stride + column] : T(Accumulator<T>(0));
  }
}

// Asks for rows 0 .. kRows - 1 of a matrix; those from `rows` on, and columns from `width` on, are
// 0. All threads of the block call, then commit and wait.
template <int kRows, int kWidth, class T>
__device__ __forceinline__ void ask_for_rows(T* to, const T* from, int64_t stride, int rows,
                                             int width, bool packs) {
  if (!packs) return put_rows<kRows, kWidth>(to, from, stride, rows, width);
  constexpr int kPacks = kWidth / kPack<T>;
  constexpr int kAcross = kPacks & -kPacks;  // threads beside each other, a power of 2
  constexpr int kDown = kTileThreads<T> / kAcross;
  static_assert(kRows % kDown == 0);
  const int row = static_cast<int>(threadIdx.x) / kAcross;
  const int column = static_cast<int>(threadIdx.x) % kAcross * kPack<T>, below = rows - row;
  to += row * kRowStride<T, kWidth> + column;
  from += row * stride + column;
#pragma unroll(sizeof(T) == 2 ? 8 : 4)  // more of float or double would spill
  for (int r = 0; r < kRows; r += kDown, from += kDown * stride) {
#pragma unroll
    for (int c = 0; c < kWidth; c += kAcross * kPack<T>) {
      copy_async_or_zero<16>(to + r * kRowStride<T, kWidth> + c, from + c,
                             r < below && column + c < width);
    }
  }
}

// to[r] (+)= from[r], by one warp, for rows in shared memory that it has written.
template <int kWidth, class T>
__device__ __forceinline__ void store_rows(T* to, int64_t stride, const T* from, int rows,
                                           int width, bool packs, bool accumulate) {
  __syncwarp();
  const int step = packs ? kPack<T> : 1, steps = width / step;
  for (int i = static_cast<int>(threadIdx.x) % kWarp; i < rows * steps; i += kWarp) {
    const int row = i / steps, column = i % steps * step;
    T* const at = to + row * stride + column;
    const T* const source = from + row * kRowStride<T, kWidth> + column;
    if (!packs) {
      *at = accumulate ? narrow<T>(wide(*at) + wide(*source)) : *source;
      continue;
    }
    Pack<T, kPack<T>> pack = load<kPack<T>>(source);
    if (accumulate) {
      const Pack<T, kPack<T>> there = load<kPack<T>>(at);
#pragma unroll
      for (int c = 0; c < kPack<T>; ++c) pack.v[c] = narrow<T>(wide(there.v[c]) + wide(pack.v[c]));
    }
    store(at, pack);
  }
}

// Sums of a warp's kM x 16 rows, times `factor` of each row, as rows in shared memory.
template <int kWidth, class T, int kM>
__device__ __forceinline__ void keep_rows(T* to, const Sum<T> (&sums)[kM][kWidth / kTile],
                                          const Accumulator<T> (&factor)[kM][2],
                                          const Places<T>& places) {
  __syncwarp();  // other lanes may read there
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int c = 0; c < kWidth / kTile; ++c) {
#pragma unroll
      for (int i = 0; i < 8; i += 2) {
        const int slot = Places<T>::row_slot(i), row = m * kTile + places.row(slot);
        Pack<T, 2> pair;
#pragma unroll
        for (int e = 0; e < 2; ++e) pair.v[e] = narrow<T>(sums[m][c].x[i + e] * factor[m][slot]);
        store_direct(to + row * kRowStride<T, kWidth> + c * kTile + places.column(i), pair);
      }
    }
  }
}

// The left factor's tiles of a warp's rows, read from shared memory each time.
template <class T, int kWidth>
struct RowsInMemory {
  const T* at;

  __device__ __forceinline__ explicit RowsInMemory(const T* rows) : at(rows) {}

  __device__ __forceinline__ Left<T> operator()(int m, int c) const {
    return load_left<T>(at + (m * kRowStride<T, kWidth> + c) * kTile, kRowStride<T, kWidth>);
  }
};

// The same, read once.
template <class T, int kWidth, int kM>
struct RowsHeld {
  Left<T> held[kM][kWidth / kTile];

  __device__ __forceinline__ explicit RowsHeld(const T* at) {
    const RowsInMemory<T, kWidth> rows(at);
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int c = 0; c < kWidth / kTile; ++c) held[m][c] = rows(m, c);
    }
  }

  __device__ __forceinline__ Left<T> operator()(int m, int c) const { return held[m][c]; }
};

// Whichever fits into registers beside the sums.
template <class T, int kWidth, int kM>
using OwnRows = std::conditional_t<std::is_same_v<T, Bf16> && kWidth <= 64, RowsHeld<T, kWidth, kM>,
                                   RowsInMemory<T, kWidth>>;

// to[i, j] = left_i . right_j, for a warp's rows and kN x 16 rows in shared memory.
template <class T, int kWidth, int kM, int kN, class Rows>
__device__ __forceinline__ void dot_products(Sum<T> (&to)[kM][kN], const Rows& left,
                                             const T* right) {
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int n = 0; n < kN; ++n) to[m][n] = zero_sum<T>();
  }
#pragma unroll
  for (int c = 0; c < kWidth / kTile; ++c) {
    Left<T> lefts[kM];
#pragma unroll
    for (int m = 0; m < kM; ++m) lefts[m] = left(m, c);
#pragma unroll
    for (int n = 0; n < kN; ++n) {
      const auto tile = load_right<T, Order::kColumns>(
          right + (n * kRowStride<T, kWidth> + c) * kTile, kRowStride<T, kWidth>);
#pragma unroll
      for (int m = 0; m < kM; ++m) multiply_add<T, Order::kColumns>(to[m][n], lefts[m], tile);
    }
  }
}

// Scores of a warp's queries q .. end - 1 become -inf for the keys from `key` on that they do not
// see.
template <class T, int kM, int kN>
__device__ __forceinline__ void hide_unseen(Sum<T> (&scores)[kM][kN], const Bounds& bounds, int q,
                                            int end, int key, const Places<T>& places) {
  using A = Accumulator<T>;
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = min(q + m * kTile + places.row(r), end - 1);
      const int first = bounds.first_of(row);
      const auto more = static_cast<unsigned>(bounds.last_of(row) - first);
#pragma unroll
      for (int n = 0; n < kN; ++n) {
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          if (Places<T>::row_slot(i) != r) continue;
          const auto behind = static_cast<unsigned>(key + n * kTile + places.column(i) - first);
          if (behind > more) scores[m][n].x[i] = -std::numeric_limits<A>::infinity();
        }
      }
    }
  }
}

// to[i] += sum_j weights[i, j] right_j, rounding the weights to T.
template <class T, int kWidth, int kM, int kN>
__device__ __forceinline__ void add_weighted(Sum<T> (&to)[kM][kWidth / kTile],
                                             const Sum<T> (&weights)[kM][kN], const T* right) {
#pragma unroll
  for (int n = 0; n < kN; ++n) {
    Left<T> lefts[kM];
#pragma unroll
    for (int m = 0; m < kM; ++m) lefts[m] = as_left<T>(weights[m][n]);
#pragma unroll
    for (int c = 0; c < kWidth / kTile; ++c) {
      const auto tile = load_right<T, Order::kRows>(right + (n * kRowStride<T, kWidth> + c) * kTile,
                                                    kRowStride<T, kWidth>);
#pragma unroll
      for (int m = 0; m < kM; ++m) multiply_add<T, Order::kRows>(to[m][c], lefts[m], tile);
    }
  }
}

}  // namespace anabranch::cuda
