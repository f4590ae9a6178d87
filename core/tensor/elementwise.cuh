// Kernels that work element by element.
#pragma once

#include "core/cuda/launch.cuh"
#include "core/tensor/pack.cuh"
#include "core/tensor/tensor.h"

namespace anabranch::cuda {

inline constexpr int kElementThreads = 256;

template <class F, class T>
__device__ __forceinline__ T apply(F f, T a, [[maybe_unused]] T b) {
  if constexpr (F::kInputs == 2) return narrow<T>(f(wide(a), wide(b)));
  if constexpr (F::kInputs == 1) return narrow<T>(f(wide(a)));
}

// One thread, kN elements; the last thread may have fewer.
template <class T, int kN, class F>
__global__ void __launch_bounds__(kElementThreads)
    each_kernel(F f, int64_t count, T* y, const T* a, const T* b) {
  const int64_t first = (int64_t{blockIdx.x} * kElementThreads + threadIdx.x) * kN;
  if (first + kN <= count) {
    const Pack<T, kN> as = load<kN>(a + first);
    const Pack<T, kN> bs = F::kInputs == 2 ? load<kN>(b + first) : as;
    Pack<T, kN> ys;
    for (int i = 0; i < kN; ++i) ys.v[i] = apply(f, as.v[i], bs.v[i]);
    store(y + first, ys);
    return;
  }
  for (int64_t i = first; i < count; ++i) y[i] = apply(f, a[i], F::kInputs == 2 ? b[i] : a[i]);
}

// y[i] = f(a[i]) or f(a[i], b[i]), F::kInputs of them, computed in the accumulator's type. All are
// of one floating type and count; y may be a or b. F is copied to the GPU.
template <class F>
void each(F f, Tensor& y, const Tensor& a, const Tensor* b = nullptr) {
  dispatch(y.dtype(), [&]<class T>() {
    T* to = y.device_data<T>();
    const T* from = a.device_data<T>();
    const T* other = b != nullptr ? b->device_data<T>() : nullptr;
    const int64_t count = y.count();
    const auto blocks = [&](int64_t n) {
      const int64_t each_block = kElementThreads * n;
      return dim3(static_cast<unsigned>((count + each_block - 1) / each_block));
    };
    constexpr dim3 kThreads(kElementThreads);
    if (aligned_for_packs(to, from, other)) {
      launch<each_kernel<T, kPack<T>, F>>({.blocks = blocks(kPack<T>), .threads = kThreads},
                                          y.stream(), f, count, to, from, other);
    } else {
      launch<each_kernel<T, 1, F>>({.blocks = blocks(1), .threads = kThreads}, y.stream(), f, count,
                                   to, from, other);
    }
  });
}

}  // namespace anabranch::cuda
