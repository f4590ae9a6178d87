// Items sorted by bucket, equal ones in their order, in three passes whose result no timing
// decides: every tile of items counts its own by bucket, the counts are added up bucket by bucket,
// and each item is put in its place. An item without a bucket has no place.
//
//   const Tiles tiles(1, items);
//   const Tensor table = partition_table(beside, tiles, buckets, Bucket{..});
//   partition_place(table, tiles, buckets, Bucket{..}, Place{..});
//
//   int bucket(int64_t item)                          in [0, buckets), or -1: none
//   void place(int64_t item, int bucket, int32_t at)  for every item that has one
//
// Moves what bucket() and place() move, and 12 bytes for each bucket and tile.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/cuda/reduce.cuh"
#include "core/tensor/tensor.h"

namespace anabranch::cuda {

// Items in segments of equal length, cut into tiles for one warp each, of which none has items of
// two segments.
struct Tiles {
  static constexpr int64_t kMost = 512, kLeast = 256;  // tiles for long segments, items of a tile

  int64_t segments, per_segment;  // items
  int64_t per_tile, of_segment;   // items of a tile, tiles of a segment

  Tiles(int64_t count, int64_t items_of_each)
      : segments(count),
        per_segment(items_of_each),
        per_tile(std::clamp((count * items_of_each + kMost - 1) / kMost, kLeast,
                            std::max(kLeast, items_of_each))),
        of_segment((items_of_each + per_tile - 1) / per_tile) {}

  [[nodiscard]] __host__ __device__ int64_t count() const { return segments * of_segment; }

  [[nodiscard]] __host__ __device__ int64_t begin(int64_t tile) const {
    return tile / of_segment * per_segment + tile % of_segment * per_tile;
  }

  [[nodiscard]] __host__ __device__ int64_t end(int64_t tile) const {
    const int64_t of_its_segment = (tile / of_segment + 1) * per_segment;
    const int64_t end = begin(tile) + per_tile;
    return end < of_its_segment ? end : of_its_segment;
  }
};

// Of the lanes `peers`, how many are before the caller's.
__device__ __forceinline__ int peers_before(unsigned peers) {
  return __popc(peers & ((1U << static_cast<unsigned>(lane_of_warp())) - 1U));
}

// The sum over this lane and those before it.
template <class T>
__device__ __forceinline__ T warp_scan(T value) {
  for (int distance = 1; distance < kWarp; distance *= 2) {
    const T other = __shfl_up_sync(kAllLanes, value, static_cast<unsigned>(distance));
    if (lane_of_warp() >= distance) value += other;
  }
  return value;
}

// A warp's way through the items begin .. end - 1: 32 at a time, in order, step(item, load(item));
// a lane without an item has -1. All lanes call step together. Loads run ahead.
template <class Load, class Step>
__device__ __forceinline__ void for_items(int64_t begin, int64_t end, const Load& load,
                                          const Step& step) {
  constexpr int kAhead = 8;
  for (int64_t first = begin; first < end; first += kAhead * kWarp) {
    int values[kAhead];
    for (int j = 0; j < kAhead; ++j) {
      const int64_t i = first + j * kWarp + lane_of_warp();
      values[j] = i < end ? load(i) : -1;
    }
    for (int j = 0; j < kAhead; ++j) {
      if (first + j * kWarp < end) step(first + j * kWarp + lane_of_warp(), values[j]);
    }
  }
}

// counts[b] += how many lanes have bucket b; returns how many had it before the caller, among
// earlier calls and lower lanes, on top of what counts[b] began with. counts: the warp's alone.
__device__ __forceinline__ int32_t count_lanes(int32_t* counts, int bucket) {
  const unsigned peers = __match_any_sync(kAllLanes, bucket);
  const int before = peers_before(peers);
  const int32_t rank = bucket >= 0 ? counts[bucket] + before : 0;
  __syncwarp();  // all have read
  if (bucket >= 0 && before == 0) counts[bucket] += __popc(peers);
  __syncwarp();  // the next call reads
  return rank;
}

// table[b, tile] = the tile's items of bucket b.
template <class Bucket>
__global__ void __launch_bounds__(8 * kWarp)
    count_items_kernel(int32_t* table, Tiles tiles, int buckets, Bucket bucket) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int64_t tile = int64_t{blockIdx.x} * (blockDim.x / kWarp) + warp;
  if (tile >= tiles.count()) return;  // a whole warp, and no barrier of the block follows
  int32_t* counts = dynamic_shared<int32_t>() + int64_t{warp} * buckets;
  for (int b = lane_of_warp(); b < buckets; b += kWarp) counts[b] = 0;
  __syncwarp();
  for_items(tiles.begin(tile), tiles.end(tile), bucket,
            [&](int64_t, int b) { count_lanes(counts, b); });
  for (int b = lane_of_warp(); b < buckets; b += kWarp) table[b * tiles.count() + tile] = counts[b];
}

inline constexpr int kScanThreads = 1024;

// table[i] = the sum over what stood before place i, also at i = count. One block.
template <class Count>
__global__ void __launch_bounds__(kScanThreads) scan_kernel(Count* table, int64_t count) {
  constexpr int kEach = 8, kWarps = kScanThreads / kWarp;
  auto& sums = shared<Count[kWarps]>();
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  Count carry = 0;
  for (int64_t first = 0; first < count; first += kScanThreads * kEach) {
    const int64_t mine = first + int64_t{threadIdx.x} * kEach;
    Count values[kEach], total = 0;
    for (int j = 0; j < kEach; ++j) {
      values[j] = mine + j < count ? table[mine + j] : Count(0);
      total += values[j];
    }
    Count before = warp_scan(total);  // with this thread's own
    if (lane_of_warp() == kWarp - 1) sums[warp] = before;
    __syncthreads();
    before += carry - total;
    for (int i = 0; i < kWarps; ++i) {
      if (i < warp) before += sums[i];
      carry += sums[i];
    }
    for (int j = 0; j < kEach; ++j) {
      if (mine + j < count) table[mine + j] = before;
      before += values[j];
    }
    __syncthreads();  // the next round writes sums
  }
  if (threadIdx.x == 0) table[count] = carry;
}

template <class Count>
void scan(Count* table, int64_t count, CUstream_st* stream) {
  launch<scan_kernel<Count>>({.threads = dim3(kScanThreads)}, stream, table, count);
}

// table: the places of the first item of each bucket and tile, after the scan.
template <class Bucket, class Place>
__global__ void __launch_bounds__(8 * kWarp)
    place_items_kernel(const int32_t* table, Tiles tiles, int buckets, Bucket bucket, Place place) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int64_t tile = int64_t{blockIdx.x} * (blockDim.x / kWarp) + warp;
  if (tile >= tiles.count()) return;  // a whole warp, and no barrier of the block follows
  int32_t* next = dynamic_shared<int32_t>() + int64_t{warp} * buckets;
  for (int b = lane_of_warp(); b < buckets; b += kWarp) next[b] = table[b * tiles.count() + tile];
  __syncwarp();
  for_items(tiles.begin(tile), tiles.end(tile), bucket, [&](int64_t item, int b) {
    const int32_t at = count_lanes(next, b);
    if (b >= 0) place(item, b, at);
  });
}

// A warp for each of `count`, with `bytes` of shared memory of its own: as many in a block, up to
// `most`, as fit.
inline Grid warp_grid(int64_t count, int64_t bytes, int64_t most) {
  constexpr int64_t kShared = int64_t{48} << 10U;
  if (bytes > kShared) {
    const auto there_are = static_cast<int64_t>(shared_bytes_of_block());
    AB_CHECK(bytes <= there_are, "[partition] a warp needs ", bytes,
             " bytes of shared memory; a block of this GPU has ", there_are);
  }
  const int64_t warps = std::clamp<int64_t>(kShared / std::max<int64_t>(bytes, 1), 1, most);
  return {.blocks = dim3(static_cast<unsigned>((count + warps - 1) / warps)),
          .threads = dim3(static_cast<unsigned>(warps * kWarp)),
          .shared_bytes = static_cast<size_t>(warps * bytes)};
}

inline Grid grid_of(const Tiles& tiles, int64_t buckets) {
  return warp_grid(tiles.count(), buckets * int64_t{sizeof(int32_t)}, 8);
}

// [buckets * tiles + 1] int32: where the items of bucket b and tile t begin is at b * tiles + t, so
// those of the bucket begin at b * tiles, and the last says how many have a place.
template <class Bucket>
Tensor partition_table(const Tensor& beside, const Tiles& tiles, int64_t buckets, Bucket bucket) {
  const int64_t count = buckets * tiles.count();
  Tensor table = beside.like({count + 1}, DType::kI32, "partition");
  auto* to = table.device_data<int32_t>();
  launch<count_items_kernel<Bucket>>(grid_of(tiles, buckets), table.stream(), to, tiles,
                                     static_cast<int>(buckets), bucket);
  scan(to, count, table.stream());
  return table;
}

template <class Bucket, class Place>
void partition_place(const Tensor& table, const Tiles& tiles, int64_t buckets, Bucket bucket,
                     Place place) {
  launch<place_items_kernel<Bucket, Place>>(grid_of(tiles, buckets), table.stream(),
                                            table.device_data<int32_t>(), tiles,
                                            static_cast<int>(buckets), bucket, place);
}

}  // namespace anabranch::cuda
