// Where the rows of each group begin, for kernels: read on the GPU, whoever knows it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/cuda/reduce.cuh"
#include "core/ops/groups.h"

namespace anabranch::cuda {

// Some offsets as an argument of a kernel.
template <int kMost>
struct OffsetPiece {
  int64_t offsets[kMost];
};

template <int kMost>
__global__ void __launch_bounds__(kMost)
    put_offsets_kernel(int64_t* to, OffsetPiece<kMost> piece, int count) {
  const int i = static_cast<int>(threadIdx.x);
  if (i < count) to[i] = piece.offsets[i];
}

// [count() + 1] int64 in the memory of x's GPU. What the host knows goes with a launch: nobody
// waits for a copy.
inline Tensor offsets_on_device(const Groups& groups, const Tensor& x) {
  if (!groups.on_host()) return groups.on_device;
  const int64_t count = groups.count() + 1;
  Tensor offsets = x.like({count}, DType::kI64, "group offsets");
  constexpr int kMost = 128;
  for (int64_t first = 0; first < count; first += kMost) {
    OffsetPiece<kMost> piece{};
    const int64_t n = std::min<int64_t>(kMost, count - first);
    std::copy_n(groups.offsets.begin() + first, n, piece.offsets);
    launch<put_offsets_kernel<kMost>>({.threads = dim3(kMost)}, x.stream(),
                                      offsets.device_data<int64_t>() + first, piece,
                                      static_cast<int>(n));
  }
  return offsets;
}

// The rows [begin, end) of one group that a tile has, at most as many as it holds.
struct GroupTile {
  int64_t group, begin, end;  // group -1: there are fewer tiles
};

// Most tiles of kRows rows that any groups can have.
template <int kRows>
int64_t most_tiles(int64_t rows, int64_t groups) {
  return (rows + groups * (kRows - 1)) / kRows;
}

// Tile `index` of those into which the groups are cut, one group after the other. All lanes of a
// warp must ask for the same, and get it.
template <int kRows>
__device__ __forceinline__ GroupTile group_tile(const int64_t* offsets, int64_t groups,
                                                int64_t index) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (int64_t first = 0; first < groups; first += kWarp) {
    const int64_t e = first + lane;
    const int64_t begin = e < groups ? offsets[e] : 0, end = e < groups ? offsets[e + 1] : 0;
    const int64_t tiles = (end - begin + kRows - 1) / kRows;
    int64_t upto = tiles;  // of the groups from `first` to e
    for (int distance = 1; distance < kWarp; distance *= 2) {
      const int64_t before = __shfl_up_sync(kAllLanes, upto, distance);
      if (lane >= distance) upto += before;
    }
    const unsigned past = __ballot_sync(kAllLanes, upto > index ? 1 : 0);
    if (past != 0) {
      const int owner = __ffs(static_cast<int>(past)) - 1;
      const int64_t row = begin + (index - (upto - tiles)) * kRows;
      const int64_t to = row + kRows < end ? row + kRows : end;
      return {first + owner, __shfl_sync(kAllLanes, row, owner), __shfl_sync(kAllLanes, to, owner)};
    }
    index -= __shfl_sync(kAllLanes, upto, kWarp - 1);
  }
  return {-1, 0, 0};
}

}  // namespace anabranch::cuda
