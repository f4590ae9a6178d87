// Sums over rows that are the same in every run: each block of a grid has a partial sum of its own,
// and these are added in the order of the blocks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>

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

// Where sums of one width go.
template <class A>
struct SumsTo {
  static constexpr int kMost = 2;

  A* to[kMost];
  bool accumulate[kMost];
};

template <class A>
__global__ void __launch_bounds__(kSumColumns* kSumGroups)
    add_partials_kernel(SumsTo<A> sinks, const A* partials, int64_t blocks, int64_t stride,
                        int64_t width) {
  auto& sums = shared<A[kSumGroups][kSumColumns]>();
  const int64_t column = int64_t{blockIdx.x} * kSumColumns + threadIdx.x;
  const int64_t from = int64_t{blockIdx.y} * width + column;
  A sum = 0;
  if (column < width) {
    for (int64_t i = threadIdx.y; i < blocks; i += kSumGroups) sum += partials[i * stride + from];
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= width) return;
  for (int i = 1; i < kSumGroups; ++i) sum += sums[i][threadIdx.x];
  const bool first = blockIdx.y == 0;  // indexed by blockIdx.y, the sinks went by the stack
  A* const to = (first ? sinks.to[0] : sinks.to[1]) + column;
  *to = (first ? sinks.accumulate[0] : sinks.accumulate[1]) ? *to + sum : sum;
}

// to_j[c] (+)= sum over blocks of partials[block * stride + j * width + c], for the elements of
// each of at most 2 sinks of one width.
template <class A>
void add_partials(std::initializer_list<GradSink*> sinks, const A* partials, int64_t blocks,
                  int64_t stride) {
  AB_CHECK(sinks.size() >= 1 && sinks.size() <= SumsTo<A>::kMost, "[add_partials] ", sinks.size(),
           " sinks; at most ", SumsTo<A>::kMost);
  SumsTo<A> to{};
  int count = 0;
  for (GradSink* sink : sinks) {
    to.to[count] = sink->out.template device_data<A>();
    to.accumulate[count++] = sink->accumulate;
  }
  const Tensor& first = (*sinks.begin())->out;
  const int64_t width = first.count();
  const dim3 grid(static_cast<unsigned>((width + kSumColumns - 1) / kSumColumns),
                  static_cast<unsigned>(count));
  launch<add_partials_kernel<A>>({.blocks = grid, .threads = dim3(kSumColumns, kSumGroups)},
                                 first.stream(), to, partials, blocks, stride, width);
}

template <class A>
void add_partials(GradSink& to, const A* partials, int64_t blocks, int64_t stride) {
  add_partials<A>({&to}, partials, blocks, stride);
}

}  // namespace anabranch::cuda
