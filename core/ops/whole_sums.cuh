// Sums over all elements of tensors, in an order fixed by their count alone: each block of a grid
// has partial sums of its own, and one more block adds these.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/cuda/reduce.cuh"
#include "core/tensor/tensor.h"

namespace anabranch::cuda {

inline constexpr int kSumThreads = 256;
inline constexpr int64_t kSumBlocks = 1024;                         // at most
inline constexpr int64_t kSumElements = int64_t{kSumThreads} * 32;  // of a block, at least

// F has kSums sums of type Sum: f.add<kN>(i, sums) adds what the elements [i, i + kN) give.
template <int kN, class F>
__global__ void __launch_bounds__(kSumThreads)
    sum_elements_kernel(F f, typename F::Sum* partials, int64_t count, int64_t per_block) {
  const int64_t begin = int64_t{blockIdx.x} * per_block;
  const int64_t end = begin + per_block < count ? begin + per_block : count;
  typename F::Sum sums[F::kSums] = {};
  int64_t i = begin + int64_t{threadIdx.x} * kN;
  for (; i + kN <= end; i += int64_t{kSumThreads} * kN) f.template add<kN>(i, sums);
  for (; i < end; ++i) f.template add<1>(i, sums);  // one thread has what is left
  for (int s = 0; s < F::kSums; ++s) {
    const typename F::Sum sum = block_sum<kSumThreads>(sums[s]);
    if (threadIdx.x == 0) partials[int64_t{s} * gridDim.x + blockIdx.x] = sum;
  }
}

// A block for each sum; write(s, sum) is called once.
template <class Sum, class Write>
__global__ void __launch_bounds__(kSumThreads)
    add_sums_kernel(Write write, const Sum* partials, int64_t blocks) {
  const Sum* mine = partials + blockIdx.x * blocks;
  Sum sum = 0;
  for (int64_t i = threadIdx.x; i < blocks; i += kSumThreads) sum += mine[i];
  sum = block_sum<kSumThreads>(sum);
  if (threadIdx.x == 0) write(static_cast<int>(blockIdx.x), sum);
}

// Reads what f.add reads, once, with packs of kN if these may be read.
template <int kN, class F, class Write>
void whole_sums(const F& f, const Write& write, int64_t count, bool packs, const Tensor& beside) {
  using Sum = typename F::Sum;
  const int64_t least = std::max(kSumElements, (count + kSumBlocks - 1) / kSumBlocks);
  const int64_t per_block = (least + kSumElements - 1) / kSumElements * kSumElements;
  const int64_t blocks = std::max<int64_t>(1, (count + per_block - 1) / per_block);
  Tensor partials = beside.like({F::kSums, blocks}, kDTypeOf<Sum>, "partial sums");
  Sum* sums = partials.device_data<Sum>();
  const Grid grid{.blocks = dim3(static_cast<unsigned>(blocks)), .threads = dim3(kSumThreads)};
  CUstream_st* stream = beside.stream();
  if (packs) {
    launch<sum_elements_kernel<kN, F>>(grid, stream, f, sums, count, per_block);
  } else {
    launch<sum_elements_kernel<1, F>>(grid, stream, f, sums, count, per_block);
  }
  launch<add_sums_kernel<Sum, Write>>({.blocks = dim3(F::kSums), .threads = dim3(kSumThreads)},
                                      stream, write, sums, blocks);
}

}  // namespace anabranch::cuda
