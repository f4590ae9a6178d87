// Elements in kernels: 16 bytes at a time, and computed with in the accumulator's type.
#pragma once

#include <cuda_bf16.h>

#include "core/cuda/launch.cuh"
#include "core/tensor/dtype.h"

namespace anabranch::cuda {

// Elements of T in 16 bytes.
template <class T>
inline constexpr int kPack = 16 / static_cast<int>(sizeof(T));

// kN elements that lie beside each other; loaded and stored in pieces of 16 bytes where that many
// are there.
template <class T, int kN>
struct alignas(sizeof(T) * kN < 16 ? sizeof(T) * kN : 16) Pack {
  T v[kN];
};

template <int kN, class T>
__device__ __forceinline__ Pack<T, kN> load(const T* from) {
  check_aligned<static_cast<int>(alignof(Pack<T, kN>))>(from);
  return *reinterpret_cast<const Pack<T, kN>*>(from);
}

// To shared memory; or to global memory where no register is left for what store() does.
template <int kN, class T>
__device__ __forceinline__ void store_direct(T* to, const Pack<T, kN>& pack) {
  check_aligned<static_cast<int>(alignof(Pack<T, kN>))>(to);
  *reinterpret_cast<Pack<T, kN>*>(to) = pack;
}

// To global memory. Of a column that is a multiple of kN nvcc makes `column + 1` into `column | 1`,
// no longer sees that the elements lie beside each other and stores them one by one, unless it
// cannot see how the address came about.
template <int kN, class T>
__device__ __forceinline__ void store(T* to, const Pack<T, kN>& pack) {
  store_direct(kN > 1 ? opaque_global(to) : to, pack);
}

// An element in the type that is computed with, exactly.
__device__ __forceinline__ float wide(float value) { return value; }

__device__ __forceinline__ double wide(double value) { return value; }

__device__ __forceinline__ float wide(Bf16 value) {
  return __bfloat162float(__ushort_as_bfloat16(value.bits));
}

// A value as an element of T, rounded to nearest, ties to even.
template <class T>
__device__ __forceinline__ T narrow(Accumulator<T> value) {
  return value;
}

template <>
__device__ __forceinline__ Bf16 narrow<Bf16>(float value) {
  Bf16 element;
  element.bits = __bfloat16_as_ushort(__float2bfloat16_rn(value));
  return element;
}

// Whether packs of kPack<T> elements may be read from each of these, or null.
template <class... Pointers>
bool aligned_for_packs(Pointers... pointers) {
  return ((reinterpret_cast<uintptr_t>(pointers) % 16 == 0) && ...);
}

// Calls f.template operator()<kN>() with the elements of T that a kernel takes at a time.
template <class T, class F>
void with_packs(bool packs, const F& f) {
  if (packs) return f.template operator()<kPack<T>>();
  f.template operator()<1>();
}

}  // namespace anabranch::cuda
