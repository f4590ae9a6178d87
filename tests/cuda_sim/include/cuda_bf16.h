// The part of CUDA's bfloat16 that this project uses: rounding and widening.
#pragma once

#include "core/tensor/bf16.h"

// NOLINTBEGIN: these names are CUDA's.
struct __nv_bfloat16 {
  unsigned short bits;
};

inline __nv_bfloat16 __float2bfloat16_rn(float value) { return {anabranch::Bf16(value).bits}; }

inline float __bfloat162float(__nv_bfloat16 value) {
  anabranch::Bf16 same;
  same.bits = value.bits;
  return static_cast<float>(same);
}

inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 value) { return value.bits; }

inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) { return {bits}; }

struct alignas(4) __nv_bfloat162 {
  __nv_bfloat16 x, y;
};

inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) {
  return {__float2bfloat16_rn(x), __float2bfloat16_rn(y)};
}

// NOLINTEND
