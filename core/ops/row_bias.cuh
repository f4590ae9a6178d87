// A bias for each column of a matrix, added to all rows, or GELU of that.
#pragma once

#include "core/ops/gelu.cuh"
#include "core/tensor/pack.cuh"
#include "core/tensor/tensor.h"

namespace anabranch::cuda {

inline constexpr int kBiasColumns = 32, kBiasGroups = 8, kBiasRowsEach = 4;

template <class T>
struct RowBias {
  T* y;        // [rows, width]; may be x
  const T* x;  // [rows, width]
  const Accumulator<T>* bias;
  int64_t rows, width;
};

// A thread has kN columns, their bias in registers, of kBiasRowsEach rows. Moves x and y once.
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
    if (row < k.rows) all[i] = load<kN>(k.x + row * k.width + column);
  }
#pragma unroll
  for (int i = 0; i < kBiasRowsEach; ++i) {
    const int64_t row = first + i * kBiasGroups;
    if (row >= k.rows) continue;
    Pack<T, kN> y;
    for (int j = 0; j < kN; ++j) {
      const A sum = wide(all[i].v[j]) + bias.v[j];
      y.v[j] = narrow<T>(kGelu ? gelu_tanh(sum).value : sum);
    }
    store(k.y + row * k.width + column, y);
  }
}

// y = x + bias; with kGelu y = gelu(x + bias). y may be x.
template <bool kGelu>
void row_bias(Tensor& y, const Tensor& x, const Tensor& bias) {
  dispatch(x.dtype(), [&]<class T>() {
    const int64_t width = bias.count();
    if (width == 0) return;
    const RowBias<T> k{y.device_data<T>(), x.device_data<T>(), bias.device_data<Accumulator<T>>(),
                       x.count() / width, width};
    const bool packs = width % kPack<T> == 0 && aligned_for_packs(k.y, k.x, k.bias);
    const int64_t columns = kBiasColumns * (packs ? kPack<T> : 1);
    constexpr int64_t kRows = kBiasGroups * kBiasRowsEach;
    const Grid grid{.blocks = dim3(static_cast<unsigned>((k.rows + kRows - 1) / kRows),
                                   static_cast<unsigned>((width + columns - 1) / columns)),
                    .threads = dim3(kBiasColumns, kBiasGroups)};
    if (packs) return launch<row_bias_kernel<T, kPack<T>, kGelu>>(grid, x.stream(), k);
    launch<row_bias_kernel<T, 1, kGelu>>(grid, x.stream(), k);
  });
}

}  // namespace anabranch::cuda
