// Kernels on short rows, as of router logits: so many lanes of a warp for each, a power of two,
// that no more than half of them idle.
#pragma once

#include <cmath>

#include "core/cuda/reduce.cuh"

namespace anabranch::cuda {

inline constexpr int kLogitThreads = 256;

inline Grid logit_grid(int64_t rows, int lanes) {
  const int64_t each_block = kLogitThreads / lanes;
  return {.blocks = dim3(static_cast<unsigned>((rows + each_block - 1) / each_block)),
          .threads = dim3(kLogitThreads)};
}

// Whose row a lane works on; those behind the last row take part in sums, with that row.
struct LaneRow {
  int64_t row;
  int lane;   // of the row's
  bool here;  // false: behind the last
};

__device__ __forceinline__ LaneRow lane_row(int64_t rows, int lanes) {
  const int64_t row = (int64_t{blockIdx.x} * kLogitThreads + threadIdx.x) / lanes;
  return {row < rows ? row : rows - 1, static_cast<int>(threadIdx.x) % lanes, row < rows};
}

// p_i = exp(s_i - largest) / sum.
template <class A>
struct RowSoftmax {
  A largest, sum;

  [[nodiscard]] __device__ A of(A s) const { return std::exp(s - largest) / sum; }

  [[nodiscard]] __device__ A log_sum() const { return largest + std::log(sum); }
};

template <class A>
__device__ __forceinline__ RowSoftmax<A> row_softmax(const A* s, int width, int lane, int lanes) {
  A largest = s[lane < width ? lane : 0];
  for (int i = lane; i < width; i += lanes) largest = s[i] > largest ? s[i] : largest;
  largest = group_max(largest, lanes);
  A sum = 0;
  for (int i = lane; i < width; i += lanes) sum += std::exp(s[i] - largest);
  return {largest, group_sum(sum, lanes)};
}

}  // namespace anabranch::cuda
