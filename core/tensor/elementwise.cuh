// Kernels that work element by element: a functor that holds pointers, called for packs of
// consecutive elements, each_pack(), or of a row's, each_row(); and the plain case of both, each().
#pragma once

#include <algorithm>
#include <bit>

#include "core/cuda/launch.cuh"
#include "core/tensor/pack.cuh"
#include "core/tensor/tensor.h"

namespace anabranch::cuda {

inline constexpr int kElementThreads = 256;

// One thread, kN elements; the last thread may have fewer.
template <int kN, class F>
__global__ void __launch_bounds__(kElementThreads) each_pack_kernel(F f, int64_t count) {
  const int64_t first = (int64_t{blockIdx.x} * kElementThreads + threadIdx.x) * kN;
  if (first + kN <= count) return f.template at<kN>(first);
  for (int64_t i = first; i < count; ++i) f.template at<1>(i);
}

// Calls f.at<kN>(i) for the elements [i, i + kN) of `count`, and f.at<1>(i) for what is left; for
// all of them unless they may be read as `packs`. F is copied to the GPU.
template <int kN, class F>
void each_pack(const F& f, int64_t count, bool packs, CUstream_st* stream) {
  const int64_t of_block = int64_t{kElementThreads} * (packs ? kN : 1);
  const Grid grid{.blocks = dim3(static_cast<unsigned>((count + of_block - 1) / of_block)),
                  .threads = dim3(kElementThreads)};
  if (packs) return launch<each_pack_kernel<kN, F>>(grid, stream, f, count);
  launch<each_pack_kernel<1, F>>(grid, stream, f, count);
}

template <int kN, class F>
__global__ void __launch_bounds__(kElementThreads)
    each_row_kernel(F f, int64_t rows, int64_t width) {
  const int64_t row = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  if (row >= rows) return;
  const int64_t step = int64_t{blockDim.x} * kN;
  for (int64_t c = int64_t{threadIdx.x} * kN; c < width; c += step) f.template at<kN>(row, c);
}

// Calls f.at<kN>(row, c) for the columns [c, c + kN) of every row, or f.at<1>(row, c) for each
// unless they may be read as `packs`: then kN divides the width.
template <int kN, class F>
void each_row(const F& f, int64_t rows, int64_t width, bool packs, CUstream_st* stream) {
  if (rows == 0 || width == 0) return;
  const int64_t pieces = packs ? width / kN : width;
  // Threads over the columns of a row: whole warps, or a part of one for a short row.
  const int64_t wanted =
      pieces > 32 ? (pieces + 31) / 32 * 32 : int64_t(std::bit_ceil(static_cast<uint64_t>(pieces)));
  const int64_t across = std::min<int64_t>(wanted, kElementThreads);
  const int64_t down = kElementThreads / across;
  const Grid grid{.blocks = dim3(static_cast<unsigned>((rows + down - 1) / down)),
                  .threads = dim3(static_cast<unsigned>(across), static_cast<unsigned>(down))};
  if (packs) return launch<each_row_kernel<kN, F>>(grid, stream, f, rows, width);
  launch<each_row_kernel<1, F>>(grid, stream, f, rows, width);
}

// kN values of f, which has F::kInputs of them: one or two.
template <class F, class T>
struct Each {
  F f;
  T* y;
  const T *a, *b;

  template <int kN>
  __device__ void at(int64_t i) const {
    const Pack<T, kN> as = load<kN>(a + i);
    Pack<T, kN> ys;
    if constexpr (F::kInputs == 2) {
      const Pack<T, kN> bs = load<kN>(b + i);
      for (int j = 0; j < kN; ++j) ys.v[j] = narrow<T>(f(wide(as.v[j]), wide(bs.v[j])));
    } else {
      for (int j = 0; j < kN; ++j) ys.v[j] = narrow<T>(f(wide(as.v[j])));
    }
    store(y + i, ys);
  }
};

// y[i] = f(a[i]) or f(a[i], b[i]), F::kInputs of them, computed in the accumulator's type. All are
// of one floating type and count; y may be a or b.
template <class F>
void each(F f, Tensor& y, const Tensor& a, const Tensor* b = nullptr) {
  dispatch(y.dtype(), [&]<class T>() {
    const Each<F, T> k{f, y.device_data<T>(), a.device_data<T>(),
                       b != nullptr ? b->device_data<T>() : nullptr};
    each_pack<kPack<T>>(k, y.count(), aligned_for_packs(k.y, k.a, k.b), y.stream());
  });
}

}  // namespace anabranch::cuda
