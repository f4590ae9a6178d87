// What the attention kernels share: the parts of a call, who sees whom, tiles in shared memory, and
// products of a warp's rows with them.
//
// A block has rows of one head (queries, or keys in the pass of their gradients), 16 or 32 of them
// for each warp; the rows that these meet go through shared memory in tiles, two in turn, the next
// one on its way while one is worked on. Scores and sums stay in registers.
#pragma once

#include <cmath>
#include <limits>
#include <numbers>

#include "core/ops/attention.h"
#include "core/ops/mma.cuh"

namespace anabranch::cuda {

// Which keys the tokens of one sequence see; both bounds never decrease.
struct Bounds {
  const int32_t *first, *last;  // null: 0; the token itself

  __device__ __forceinline__ int first_of(int t) const { return first == nullptr ? 0 : first[t]; }

  __device__ __forceinline__ int last_of(int t) const { return last == nullptr ? t : last[t]; }

  // How much of a tile counts: queries q0 .. q1 - 1, keys k0 .. k1 - 1.
  enum class Seen : uint8_t { kNone, kSome, kAll };

  __device__ __forceinline__ Seen seen(int q0, int q1, int k0, int k1) const {
    if (q0 >= q1 || last_of(q1 - 1) < k0 || first_of(q0) >= k1) return Seen::kNone;
    return first_of(q1 - 1) <= k0 && last_of(q0) >= k1 - 1 ? Seen::kAll : Seen::kSome;
  }

  __device__ __forceinline__ bool sees(int q, int k) const {
    return first_of(q) <= k && k <= last_of(q);
  }
};

// A call, as kernels get it. A block's head is blockIdx.y, its sequence blockIdx.z.
template <class T>
struct AttentionCall {
  const T* qkv;                 // [B*T, 3C]
  const int32_t *first, *last;  // [B, T], or null
  int tokens, heads, width;     // T, H, D
  bool packs;                   // rows may be moved 16 bytes at a time
  Accumulator<T> scale;         // 1 / sqrt(D)

  [[nodiscard]] __device__ __forceinline__ int64_t channels() const {
    return int64_t{heads} * width;
  }

  // Of this block's head: the first element in an array of rows of `parts` x C, such as qkv.
  [[nodiscard]] __device__ __forceinline__ int64_t offset(int parts) const {
    return int64_t{blockIdx.z} * tokens * parts * channels() + int64_t{blockIdx.y} * width;
  }

  // The same in [B, H, T].
  [[nodiscard]] __device__ __forceinline__ int64_t row_offset() const {
    return (int64_t{blockIdx.z} * heads + blockIdx.y) * tokens;
  }

  [[nodiscard]] __device__ __forceinline__ Bounds bounds() const {
    const int64_t at = int64_t{blockIdx.z} * tokens;
    return {first == nullptr ? nullptr : first + at, last == nullptr ? nullptr : last + at};
  }
};

template <class T>
AttentionCall<T> attention_call(const Tensor& qkv, const KeyBounds& bounds, const Tensor& lse) {
  const int64_t tokens = lse.dim(2), heads = lse.dim(1), width = qkv.dim(1) / 3 / heads;
  AB_CHECK(tokens <= std::numeric_limits<int32_t>::max() / 2, "[attention] ", tokens,
           " tokens of a sequence are more than a GPU kernel counts");
  const auto data_or_null = [](const Tensor& t) {
    return t.empty() ? nullptr : t.device_data<int32_t>();
  };
  const T* const data = qkv.device_data<T>();
  return {.qkv = data,
          .first = data_or_null(bounds.first),
          .last = data_or_null(bounds.last),
          .tokens = static_cast<int>(tokens),
          .heads = static_cast<int>(heads),
          .width = static_cast<int>(width),
          .packs = width % kPack<T> == 0 && aligned_for_packs(data),
          .scale = static_cast<Accumulator<T>>(1 / std::sqrt(static_cast<double>(width)))};
}

// Runs the first of Kernels, best first, that fits the call.
template <class... Kernels, class Call>
void run_first_that_fits(const Call& call) {
  const bool ran = (... || (Kernels::fits(call) && (Kernels::run(call), true)));
  AB_CHECK(ran, "[attention] no kernel fits");
}

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

// Rows of kWidth elements in shared memory, 16 bytes further apart, so that the rows of a tile lie
// in different banks.
template <class T, int kWidth>
inline constexpr int kRowStride = kWidth + kPack<T>;

// Asks for rows 0 .. kRows - 1 of a matrix; those from `rows` on, and columns from `width` on, are
// 0. All threads of the block call, then commit and wait.
template <int kRows, int kWidth, class T>
__device__ __forceinline__ void ask_for_rows(T* to, const T* from, int64_t stride, int rows,
                                             int width, bool packs) {
  constexpr int kPacks = kWidth / kPack<T>;
  for (int i = static_cast<int>(threadIdx.x); i < kRows * kPacks;
       i += static_cast<int>(blockDim.x)) {
    const int row = i / kPacks, column = i % kPacks * kPack<T>;
    T* const at = to + row * kRowStride<T, kWidth> + column;
    const T* const source = from + row * stride + column;
    if (packs && row < rows && column < width) {
      copy_async<16>(at, source);
      continue;
    }
    Pack<T, kPack<T>> pack;
#pragma unroll
    for (int c = 0; c < kPack<T>; ++c) {
      pack.v[c] = row < rows && column + c < width ? source[c] : T(Accumulator<T>(0));
    }
    store(at, pack);
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
                                          const Places& places) {
  __syncwarp();  // other lanes may read there
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int c = 0; c < kWidth / kTile; ++c) {
#pragma unroll
      for (int i = 0; i < 8; i += 2) {
        const int slot = Places::row_slot(i), row = m * kTile + places.rows[slot];
        Pack<T, 2> pair;
#pragma unroll
        for (int e = 0; e < 2; ++e) pair.v[e] = narrow<T>(sums[m][c].x[i + e] * factor[m][slot]);
        store(to + row * kRowStride<T, kWidth> + c * kTile + places.column(i), pair);
      }
    }
  }
}

// The left factor's tiles of a warp's rows, read from shared memory each time.
template <class T, int kWidth>
struct RowsInMemory {
  const T* at;

  __device__ __forceinline__ Left<T> operator()(int m, int c) const {
    return load_left<T>(at + (m * kRowStride<T, kWidth> + c) * kTile, kRowStride<T, kWidth>);
  }
};

// The same, read once.
template <class T, int kWidth, int kM>
struct RowsHeld {
  Left<T> held[kM][kWidth / kTile];

  __device__ __forceinline__ explicit RowsHeld(const T* at) {
    const RowsInMemory<T, kWidth> rows{at};
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int c = 0; c < kWidth / kTile; ++c) held[m][c] = rows(m, c);
    }
  }

  __device__ __forceinline__ Left<T> operator()(int m, int c) const { return held[m][c]; }
};

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
                                            int end, int key, const Places& places) {
  using A = Accumulator<T>;
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = min(q + m * kTile + places.rows[r], end - 1);
      const int first = bounds.first_of(row) - key, last = bounds.last_of(row) - key;
#pragma unroll
      for (int n = 0; n < kN; ++n) {
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          if (Places::row_slot(i) != r) continue;
          const int at = n * kTile + places.column(i);
          if (at < first || at > last) {
            scores[m][n].x[i] = -std::numeric_limits<A>::infinity();
          }
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
