// Kernels that work on the rows of a matrix, each thread on packs of columns of one row.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/cuda/launch.cuh"
#include "core/tensor/pack.cuh"

namespace anabranch::cuda {

inline constexpr int kRowThreads = 256;

// threadIdx.x counts the packs of a row, threadIdx.y the rows of a block.
__device__ __forceinline__ int64_t row_of_thread() {
  return int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
}

// As many threads beside each other as a row has packs of kN, a power of two.
template <int kN>
Grid row_grid(int64_t rows, int64_t width) {
  unsigned x = 1;
  while (x < kRowThreads && x * kN < width) x *= 2;
  const unsigned y = kRowThreads / x;
  return {.blocks = dim3(static_cast<unsigned>((rows + y - 1) / y)), .threads = dim3(x, y)};
}

// Calls body.operator()<kN>() for packs of 16 bytes where rows allow them, else for single
// elements.
template <class T, class Body>
void with_packs(int64_t width, bool aligned, const Body& body) {
  if (aligned && width % kPack<T> == 0) return body.template operator()<kPack<T>>();
  body.template operator()<1>();
}

}  // namespace anabranch::cuda
