// Sums over the rows of a matrix, of each column, weighted or not: gradients of biases.
#pragma once

#include "core/ops/lane_sums.cuh"
#include "core/ops/row_blocks.cuh"
#include "core/tensor/tensor.h"

namespace anabranch::cuda {

inline constexpr int kColumnThreads = 32, kColumnGroups = 8;

template <class T>
struct ColumnSums {
  Accumulator<T>* partials;       // [blocks, sums, width]
  const T* x;                     // [rows, width]
  const Accumulator<T>* weights;  // [rows, sums], or null: all 1, and one sum
  int64_t rows, per_block, width, sums;
};

// to[c] = the sum over the groups of what each has of the block's column c, in their order. All
// threads call it, with the kN columns of each; of the block's columns, `count` are there.
template <int kN, class A>
__device__ __forceinline__ void add_groups(A* to, const Pack<A, kN>& sums, int64_t count) {
  auto& groups = shared<A[kColumnGroups][kColumnThreads * kN]>();
  put_lane<kN>(groups[threadIdx.y], sums);
  __syncthreads();
  const int column = static_cast<int>(threadIdx.y * kColumnThreads + threadIdx.x);
  if (column < kColumnThreads * kN && column < count) {
    const int64_t at = column_place<kN, A>(column);
    A total = groups[0][at];
    for (int g = 1; g < kColumnGroups; ++g) total += groups[g][at];
    to[column] = total;
  }
  __syncthreads();  // other sums may be put there
}

// kSums of the sums over a block of rows: a thread adds kN columns of each kColumnGroups-th row,
// and the groups' sums are added in their order. Reads x once for kSums of the sums.
template <class T, int kN, int kSums>
__global__ void __launch_bounds__(kColumnThreads* kColumnGroups)
    column_sums_kernel(ColumnSums<T> k) {
  using A = Accumulator<T>;
  const int64_t first_column = int64_t{blockIdx.y} * (kColumnThreads * kN);
  const int64_t column = first_column + threadIdx.x * kN, first_sum = int64_t{blockIdx.z} * kSums;
  const int64_t begin = int64_t{blockIdx.x} * k.per_block;
  const int64_t end = begin + k.per_block < k.rows ? begin + k.per_block : k.rows;
  Pack<A, kN> sums[kSums] = {};
  for (int64_t row = begin + threadIdx.y; row < end && column < k.width; row += kColumnGroups) {
    const Pack<T, kN> x = load<kN>(k.x + row * k.width + column);
    for (int s = 0; s < kSums; ++s) {
      A weight = 1;
      if (k.weights != nullptr) {
        weight = first_sum + s < k.sums ? k.weights[row * k.sums + first_sum + s] : A(0);
      }
      for (int i = 0; i < kN; ++i) sums[s].v[i] += weight * wide(x.v[i]);
    }
  }
  for (int s = 0; s < kSums; ++s) {
    const int64_t to = int64_t{blockIdx.x} * k.sums + first_sum + s;
    add_groups<kN>(k.partials + to * k.width + first_column, sums[s],
                   first_sum + s < k.sums ? k.width - first_column : 0);
  }
}

// to [sums, width] (+)= weights^T x. Without weights there is one sum.
template <class T>
void column_sums(GradSink& to, const Tensor& x, const Tensor* weights) {
  using A = Accumulator<T>;
  const int64_t sums = weights != nullptr ? weights->dim(-1) : 1, width = to.out.count() / sums;
  if (width == 0) return;
  const GridRows blocks(x.count() / width);
  Tensor partials = x.like({blocks.count, sums, width}, kDTypeOf<A>, "partial sums");
  const ColumnSums<T> k{partials.device_data<A>(),
                        x.device_data<T>(),
                        weights != nullptr ? weights->device_data<A>() : nullptr,
                        blocks.rows,
                        blocks.per_block,
                        width,
                        sums};
  const auto run = [&]<int kN, int kSums>() {
    constexpr int64_t kColumns = kColumnThreads * kN;
    const Grid grid{.blocks = dim3(static_cast<unsigned>(blocks.count),
                                   static_cast<unsigned>((width + kColumns - 1) / kColumns),
                                   static_cast<unsigned>((sums + kSums - 1) / kSums)),
                    .threads = dim3(kColumnThreads, kColumnGroups)};
    launch<column_sums_kernel<T, kN, kSums>>(grid, x.stream(), k);
  };
  constexpr int kAtOnce = 4;
  const bool packs = width % kPack<T> == 0 && aligned_for_packs(k.x);
  if (sums == 1) {
    packs ? run.template operator()<kPack<T>, 1>() : run.template operator()<1, 1>();
  } else {
    packs ? run.template operator()<kPack<T>, kAtOnce>() : run.template operator()<1, kAtOnce>();
  }
  add_partials<A>(to, k.partials, blocks.count, sums * width);
}

}  // namespace anabranch::cuda
