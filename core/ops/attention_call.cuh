// What the attention kernels get, who sees whom, and the choice of a kernel.
#pragma once

#include <cmath>
#include <limits>

#include "core/cuda/launch.cuh"
#include "core/ops/attention.h"
#include "core/tensor/pack.cuh"

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
  const T* qkv;                     // [B*T, 3C]
  const int32_t *first, *last;      // [B, T], or null
  int batch, tokens, heads, width;  // B, T, H, D
  bool packs;                       // rows may be moved 16 bytes at a time
  Accumulator<T> scale;             // 1 / sqrt(D)

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

  // Blocks that have `rows` rows of a head each.
  [[nodiscard]] Grid grid(int rows, int threads, size_t shared_bytes) const {
    return {.blocks = dim3(static_cast<unsigned>((tokens + rows - 1) / rows),
                           static_cast<unsigned>(heads), static_cast<unsigned>(batch)),
            .threads = dim3(static_cast<unsigned>(threads)),
            .shared_bytes = shared_bytes};
  }

  [[nodiscard]] __device__ __forceinline__ Bounds bounds() const {
    const int64_t at = int64_t{blockIdx.z} * tokens;
    return {first == nullptr ? nullptr : first + at, last == nullptr ? nullptr : last + at};
  }
};

// What its backward reads and writes beside that.
template <class T>
struct AttentionGradients {
  const T* dy;                       // [B*T, C]
  const Accumulator<T>*lse, *delta;  // [B, H, T]
  T* dqkv;                           // [B*T, 3C]
  bool accumulate;
};

// The first of `count` numbers, which do not decrease, that is not below `bound`; else count.
__device__ __forceinline__ int first_not_below(const int32_t* numbers, int count, int bound) {
  int begin = 0;
  while (begin < count) {
    const int middle = begin + (count - begin) / 2;
    if (numbers[middle] < bound) {
      begin = middle + 1;
    } else {
      count = middle;
    }
  }
  return begin;
}

// Queries that see any of the keys `first` .. `last`.
struct QueryRange {
  int begin, end;

  __device__ __forceinline__ QueryRange(const Bounds& bounds, int first, int last, int tokens)
      : begin(bounds.last == nullptr ? first : first_not_below(bounds.last, tokens, first)),
        end(bounds.first == nullptr ? tokens : first_not_below(bounds.first, tokens, last + 1)) {}
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
          .batch = static_cast<int>(lse.dim(0)),
          .tokens = static_cast<int>(tokens),
          .heads = static_cast<int>(heads),
          .width = static_cast<int>(width),
          .packs = width % kPack<T> == 0 && aligned_for_packs(data),
          .scale = static_cast<Accumulator<T>>(1 / std::sqrt(static_cast<double>(width)))};
}

// Runs the first of Kernels, best first, that fits what is asked of them.
template <class... Kernels, class Asked>
void run_first_that_fits(const Asked& asked) {
  const bool ran = (... || (Kernels::fits(asked) && (Kernels::run(asked), true)));
  AB_CHECK(ran, "[attention] no kernel fits heads of ", asked.call.width, " channels into the ",
           shared_bytes_of_block(),
           " bytes of shared memory that a block of this GPU has; use more ", "heads");
}

}  // namespace anabranch::cuda
