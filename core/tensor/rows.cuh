// Kernels with a warp for each row, and the copy of rows.
#pragma once

#include "core/cuda/reduce.cuh"
#include "core/tensor/pack.cuh"

namespace anabranch::cuda {

inline constexpr int kRowWarps = 8;  // of a block

// The row of the calling warp; it may be past the last.
__device__ __forceinline__ int64_t warp_row() {
  return int64_t{blockIdx.x} * kRowWarps + threadIdx.x / kWarp;
}

// The first of a row's elements that the calling lane takes, kN at a time; kWarp * kN further the
// next ones.
template <int kN>
__device__ __forceinline__ int64_t lane_column() {
  return int64_t{threadIdx.x % kWarp} * kN;
}

inline Grid grid_of_rows(int64_t rows) {
  return {.blocks = dim3(static_cast<unsigned>((rows + kRowWarps - 1) / kRowWarps)),
          .threads = dim3(kRowWarps * kWarp)};
}

template <class T, int kN, class From>
__global__ void __launch_bounds__(kRowWarps* kWarp)
    copy_rows_kernel(T* to, From from, int64_t rows, int64_t width) {
  const int64_t row = warp_row();
  if (row >= rows) return;
  const T* source = from(row);
  T* out = to + row * width;
  for (int64_t c = lane_column<kN>(); c < width; c += kWarp * kN) {
    Pack<T, kN> pack{};
    if (source != nullptr) pack = load<kN>(source + c);
    store(out + c, pack);
  }
}

// Row i of `to` [rows, width] becomes what from(i) points to, or 0 where that is null. `aligned`:
// whether all that `from` gives is, given that `width` is a multiple of a pack.
template <class T, class From>
void copy_rows(T* to, const From& from, int64_t rows, int64_t width, bool aligned,
               CUstream_st* stream) {
  with_packs<T>(aligned && width % kPack<T> == 0 && aligned_for_packs(to), [&]<int kN>() {
    launch<copy_rows_kernel<T, kN, From>>(grid_of_rows(rows), stream, to, from, rows, width);
  });
}

}  // namespace anabranch::cuda
