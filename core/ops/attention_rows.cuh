// Attention a row at a time, a warp for each: heads of any width, and the few queries of
// generation. Simple rather than fast.
#pragma once

#include <cmath>
#include <limits>

#include "core/cuda/reduce.cuh"
#include "core/tensor/pack.cuh"

namespace anabranch::cuda {

inline constexpr int kRowWarps = 4;

// A warp's shared memory: weights of 32 rows, then `vectors` of `width` elements.
template <class A>
size_t rows_shared_bytes(int64_t vectors, int64_t width) {
  return static_cast<size_t>(kRowWarps * (kWarp + vectors * width)) * sizeof(A);
}

template <class A>
__device__ __forceinline__ A* rows_scratch(int vectors, int width) {
  return dynamic_shared<A>() + static_cast<int>(threadIdx.x) / kWarp * (kWarp + vectors * width);
}

__device__ __forceinline__ int lane_of_warp() { return static_cast<int>(threadIdx.x) % kWarp; }

template <class A>
__device__ __forceinline__ A warp_max(A value) {
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    value = std::fmax(value, __shfl_xor_sync(kAllLanes, value, distance));
  }
  return value;
}

template <class A, class T>
__device__ __forceinline__ A dot_of(const A* a, const T* b, int width) {
  A sum = 0;
  for (int c = 0; c < width; ++c) sum += a[c] * wide(b[c]);
  return sum;
}

// to[c] = shrink to[c] + sum_j weights[j] rows[j, c], by the lanes that have column c.
template <class A, class T>
__device__ __forceinline__ void mix_rows(A* to, A shrink, const A* weights, const T* rows,
                                         int64_t stride, int count, int width) {
  for (int c = lane_of_warp(); c < width; c += kWarp) {
    A sum = shrink == A(0) ? A(0) : to[c] * shrink;
    for (int j = 0; j < count; ++j) sum += weights[j] * wide(rows[j * stride + c]);
    to[c] = sum;
  }
}

// One query, and keys and values `stride` apart of which it sees begin .. end - 1.
template <class T>
struct RowForward {
  const T *q, *k, *v;
  int64_t stride;
  int begin, end, width;
  Accumulator<T> scale;
  T* y;
  Accumulator<T>* lse;  // may be null
};

// By one warp, with scratch for two vectors.
template <class T>
__device__ __forceinline__ void attend_row(const RowForward<T>& k, Accumulator<T>* scratch) {
  using A = Accumulator<T>;
  A *const weights = scratch, *const q = scratch + kWarp, *const sums = q + k.width;
  const int lane = lane_of_warp();
  for (int c = lane; c < k.width; c += kWarp) q[c] = wide(k.q[c]);
  __syncwarp();
  A max = -std::numeric_limits<A>::infinity(), sum = 0;
  for (int key = k.begin; key < k.end; key += kWarp) {
    const int count = min(kWarp, k.end - key);
    A score = -std::numeric_limits<A>::infinity();
    if (lane < count) score = k.scale * dot_of(q, k.k + (key + lane) * k.stride, k.width);
    const A now = std::fmax(max, warp_max(score));
    const A origin = now == -std::numeric_limits<A>::infinity() ? A(0) : now;
    const A shrink = std::exp(max - origin), p = std::exp(score - origin);
    weights[lane] = p;
    __syncwarp();
    sum = sum * shrink + warp_sum(p);
    mix_rows(sums, shrink, weights, k.v + key * k.stride, k.stride, count, k.width);
    max = now;
    __syncwarp();
  }
  for (int c = lane; c < k.width; c += kWarp) k.y[c] = narrow<T>(sums[c] / sum);
  if (k.lse != nullptr && lane == 0) *k.lse = max + std::log(sum);
}

}  // namespace anabranch::cuda
