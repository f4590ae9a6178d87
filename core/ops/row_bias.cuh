// A bias for each column of a matrix, added to all rows, and GELU of that.
#pragma once

#include "core/ops/gelu.cuh"
#include "core/tensor/pack.cuh"
#include "core/tensor/tensor.h"

namespace anabranch::cuda {

inline constexpr int kBiasColumns = 32, kBiasGroups = 8, kBiasRowsEach = 4;

template <class T>
struct RowBias {
  T* c;  // [rows, width]
  T* y;  // with kGelu: receives gelu(c)
  const Accumulator<T>* bias;
  int64_t rows, width;
};

// A thread has kN columns, their bias in registers, of kBiasRowsEach rows. Moves c twice, and y.
template <class T, int kN, bool kGelu>
__global__ void __launch_bounds__(kBiasColumns* kBiasGroups) row_bias_kernel(RowBias<T> k) {
  using A = Accumulator<T>;
  const int64_t column = (int64_t{blockIdx.y} * kBiasColumns + threadIdx.x) * kN;
  if (column >= k.width) return;
  const Pack<A, kN> bias = load<kN>(k.bias + column);
  const int64_t first = int64_t{blockIdx.x} * (kBiasGroups * kBiasRowsEach) + threadIdx.y;
  Pack<T, kN> all[kBiasRowsEach];  // all under way at once
#pragma unroll
  for (int i = 0; i < kBiasRowsEach; ++i) {
    const int64_t row = first + i * kBiasGroups;
    if (row < k.rows) all[i] = load<kN>(k.c + row * k.width + column);
  }
#pragma unroll
  for (int i = 0; i < kBiasRowsEach; ++i) {
    const int64_t row = first + i * kBiasGroups;
    if (row >= k.rows) continue;
    T* at = k.c + row * k.width + column;
    Pack<T, kN> c = all[i], y;
    for (int j = 0; j < kN; ++j) {
      c.v[j] = narrow<T>(wide(c.v[j]) + bias.v[j]);
      if constexpr (kGelu) y.v[j] = narrow<T>(gelu_tanh(wide(c.v[j])).value);
    }
    store(at, c);
    if constexpr (kGelu) store(k.y + row * k.width + column, y);
  }
}

// c += bias; with kGelu also y = gelu(c).
template <bool kGelu>
void row_bias(Tensor& c, const Tensor& bias, Tensor* y = nullptr) {
  dispatch(c.dtype(), [&]<class T>() {
    const int64_t width = bias.count();
    if (width == 0) return;
    const RowBias<T> k{c.device_data<T>(), kGelu ? y->device_data<T>() : nullptr,
                       bias.device_data<Accumulator<T>>(), c.count() / width, width};
    const bool packs = width % kPack<T> == 0 && aligned_for_packs(k.c, k.y, k.bias);
    const int64_t columns = kBiasColumns * (packs ? kPack<T> : 1);
    constexpr int64_t kRows = kBiasGroups * kBiasRowsEach;
    const Grid grid{.blocks = dim3(static_cast<unsigned>((k.rows + kRows - 1) / kRows),
                                   static_cast<unsigned>((width + columns - 1) / columns)),
                    .threads = dim3(kBiasColumns, kBiasGroups)};
    if (packs) return launch<row_bias_kernel<T, kPack<T>, kGelu>>(grid, c.stream(), k);
    launch<row_bias_kernel<T, 1, kGelu>>(grid, c.stream(), k);
  });
}

}  // namespace anabranch::cuda
