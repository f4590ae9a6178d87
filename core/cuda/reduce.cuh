// Sums over the threads of a warp or a block, in an order that does not depend on timing: the same
// bits in every run, and in every thread that gets the sum.
#pragma once

#include "core/cuda/launch.cuh"

namespace anabranch::cuda {

inline constexpr int kWarp = 32;
inline constexpr unsigned kAllLanes = 0xFFFFFFFFU;

__device__ __forceinline__ int lane_of_warp() { return static_cast<int>(threadIdx.x) % kWarp; }

// How many lanes of a warp share `steps` steps of work: the least power of 2 that has them all.
inline int lanes_for(int64_t steps) {
  int lanes = 1;
  while (lanes < kWarp && lanes < steps) lanes *= 2;
  return lanes;
}

// The sum over `lanes` neighbouring lanes, as of lanes_for(); all lanes of the warp must ask.
template <class T>
__device__ __forceinline__ T group_sum(T value, int lanes) {
  for (int distance = lanes / 2; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, distance);
  }
  return value;
}

// The sum over a warp, which all its lanes must ask for and all get.
template <class T>
__device__ __forceinline__ T warp_sum(T value) {
  return group_sum(value, kWarp);
}

// The greatest of neighbouring lanes, in the same way.
template <class T>
__device__ __forceinline__ T group_max(T value, int lanes) {
  for (int distance = lanes / 2; distance > 0; distance /= 2) {
    const T other = __shfl_xor_sync(kAllLanes, value, distance);
    value = other > value ? other : value;
  }
  return value;
}

// The sum over a block of kThreads, a multiple of 32; all threads must ask for it and all get it.
template <int kThreads, class T>
__device__ __forceinline__ T block_sum(T value) {
  static_assert(kThreads % kWarp == 0);
  constexpr int kWarps = kThreads / kWarp;
  auto& sums = shared<T[kWarps], struct BlockSums>();
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  value = warp_sum(value);
  if (static_cast<int>(threadIdx.x) % kWarp == 0) sums[warp] = value;
  __syncthreads();
  T total = sums[0];
  for (int i = 1; i < kWarps; ++i) total += sums[i];
  __syncthreads();  // the next sum writes there
  return total;
}

}  // namespace anabranch::cuda
