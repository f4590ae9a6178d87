// Scores as keys that keep their order, expert by expert: what choices among them read.
#pragma once

#include "core/cuda/launch.cuh"
#include "core/ops/sort_key.h"
#include "core/tensor/tensor.h"

namespace anabranch::cuda {

inline constexpr int kKeyTile = 32, kKeyTileRows = 8;

// keys[e, m] = the key of scores[m, e].
template <class A, class Key>
__global__ void __launch_bounds__(kKeyTile* kKeyTileRows)
    keys_kernel(Key* keys, const A* scores, int64_t rows, int64_t experts) {
  auto& tile = shared<Key[kKeyTile][kKeyTile + 1]>();
  const int64_t first_row = int64_t{blockIdx.x} * kKeyTile;
  const int64_t first_expert = int64_t{blockIdx.y} * kKeyTile;
  const int x = static_cast<int>(threadIdx.x);
  for (int y = static_cast<int>(threadIdx.y); y < kKeyTile; y += kKeyTileRows) {
    const int64_t m = first_row + y, e = first_expert + x;
    if (m < rows && e < experts) tile[y][x] = sort_key(scores[m * experts + e]);
  }
  __syncthreads();
  for (int y = static_cast<int>(threadIdx.y); y < kKeyTile; y += kKeyTileRows) {
    const int64_t m = first_row + x, e = first_expert + y;
    if (m < rows && e < experts) keys[e * rows + m] = tile[x][y];
  }
}

// keys [E, M], of scores [M, E] of type A.
template <class A, class Key = decltype(sort_key(A()))>
void score_keys(Key* keys, const Tensor& scores) {
  const int64_t M = scores.dim(0), E = scores.dim(1);
  const auto tiles = [](int64_t n) { return static_cast<unsigned>((n + kKeyTile - 1) / kKeyTile); };
  launch<keys_kernel<A, Key>>(
      {.blocks = dim3(tiles(M), tiles(E)), .threads = {kKeyTile, kKeyTileRows}}, scores.stream(),
      keys, scores.device_data<A>(), M, E);
}

}  // namespace anabranch::cuda
