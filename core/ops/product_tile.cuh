// A tile of a matrix product by one block. Elements of c are sums in one order, whatever else is in
// the tile.
#pragma once

#include "core/ops/tile_sums.cuh"

namespace anabranch::cuda {

// Dynamic shared memory that a tile needs.
template <class T, bool kTransposeA, bool kTransposeB>
constexpr size_t tile_bytes() {
  constexpr size_t kStage =
      (StagedA<T, kTransposeA>::kCount + StagedB<T, kTransposeB>::kCount) * sizeof(T);
  constexpr size_t kAll = TileShape<T>::kStages * kStage;
  constexpr size_t kStaging = TileSums<T, kTransposeA, kTransposeB>::kStagingBytes;
  constexpr size_t kNeeded = kAll > kStaging ? kAll : kStaging;
  static_assert(2 * kNeeded <= size_t{162} << 10U, "an A100 has room for two blocks");
  return kNeeded;
}

// Makes a tile, by all threads of a block of TileShape<T>::kThreads. kPacks: all pointers and
// strides, and the extents along rows in memory, are multiples of 16 bytes.
template <bool kTransposeA, bool kTransposeB, bool kPacks, class T, class Out>
__device__ __forceinline__ void make_tile(const ProductTile<T, Out>& tile) {
  using A = StagedA<T, kTransposeA>;
  using B = StagedB<T, kTransposeB>;
  constexpr int kInner = TileShape<T>::kInner, kStages = TileShape<T>::kStages;
  T* stages = dynamic_shared<T>();
  const auto steps = static_cast<int>((tile.inner + kInner - 1) / kInner);
  const auto fetch = [&](int step) {
    if (step < steps) {
      T* a = stages + step % kStages * (A::kCount + B::kCount);
      const int64_t first = int64_t{step} * kInner;
      const int left = tile.inner - first < kInner ? static_cast<int>(tile.inner - first) : kInner;
      if constexpr (kTransposeA) {
        A::template fetch<kPacks>(a, tile.a + first * tile.lda, tile.lda, left, tile.rows);
      } else {
        A::template fetch<kPacks>(a, tile.a + first, tile.lda, tile.rows, left);
      }
      T* b = a + A::kCount;
      if constexpr (kTransposeB) {
        B::template fetch<kPacks>(b, tile.b + first, tile.ldb, tile.columns, left);
      } else {
        B::template fetch<kPacks>(b, tile.b + first * tile.ldb, tile.ldb, left, tile.columns);
      }
    }
    commit_async();
  };
  TileSums<T, kTransposeA, kTransposeB> sums;
  for (int step = 0; step < kStages - 1; ++step) fetch(step);
  for (int step = 0; step < steps; ++step) {
    wait_async<kStages - 2>();
    __syncthreads();  // all have that stage, and are done with the one before
    fetch(step + kStages - 1);
    const T* a = stages + step % kStages * (A::kCount + B::kCount);
    sums.add(a, a + A::kCount);
  }
  wait_async<0>();
  __syncthreads();  // what was staged may be written over
  sums.template write<kPacks>(tile, stages);
}

}  // namespace anabranch::cuda
