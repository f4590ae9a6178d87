// Sums over rows that are the same in every run: each block of a grid has a partial sum of its own,
// and these are added in the order of the blocks.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/autograd/tape.h"
#include "core/cuda/launch.cuh"

namespace anabranch::cuda {

// How `n` rows are cut for a grid: at most 256 blocks of equal size, whatever the GPU, and one for
// no rows, so that there is always a sum.
struct GridRows {
  int64_t rows, per_block, count;

  explicit GridRows(int64_t n)
      : rows(n),
        per_block(std::max<int64_t>(1, (n + 255) / 256)),
        count(std::max<int64_t>(1, (n + per_block - 1) / per_block)) {}
};

inline constexpr int kSumColumns = 32, kSumGroups = 8;

template <class A>
__global__ void __launch_bounds__(kSumColumns* kSumGroups)
    add_partials_kernel(A* to, bool accumulate, const A* partials, int64_t blocks, int64_t stride,
                        int64_t width) {
  auto& sums = shared<A[kSumGroups][kSumColumns]>();
  const int64_t column = int64_t{blockIdx.x} * kSumColumns + threadIdx.x;
  A sum = 0;
  if (column < width) {
    for (int64_t i = threadIdx.y; i < blocks; i += kSumGroups) sum += partials[i * stride + column];
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= width) return;
  for (int i = 1; i < kSumGroups; ++i) sum += sums[i][threadIdx.x];
  to[column] = accumulate ? to[column] + sum : sum;
}

// to[c] (+)= sum over blocks of partials[block * stride + c], for each of to's elements.
template <class A>
void add_partials(GradSink& to, const A* partials, int64_t blocks, int64_t stride) {
  const int64_t width = to.out.count();
  const auto grid = static_cast<unsigned>((width + kSumColumns - 1) / kSumColumns);
  launch<add_partials_kernel<A>>({.blocks = dim3(grid), .threads = dim3(kSumColumns, kSumGroups)},
                                 to.out.stream(), to.out.template device_data<A>(), to.accumulate,
                                 partials, blocks, stride, width);
}

}  // namespace anabranch::cuda
