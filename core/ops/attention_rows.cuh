// Attention a row at a time, a warp for each: heads of any width, and the few queries of
// generation. Simple rather than fast.
#pragma once

#include <cmath>
#include <limits>

#include "core/cuda/reduce.cuh"
#include "core/ops/attention_call.cuh"

namespace anabranch::cuda {

inline constexpr int kAttentionWarps = 4;

// A warp's shared memory: weights of 32 rows, then `vectors` of `width` elements.
template <class A>
size_t rows_shared_bytes(int64_t vectors, int64_t width) {
  return static_cast<size_t>(kAttentionWarps * (kWarp + vectors * width)) * sizeof(A);
}

template <class A>
__device__ __forceinline__ A* rows_scratch(int vectors, int width) {
  return dynamic_shared<A>() + static_cast<int>(threadIdx.x) / kWarp * (kWarp + vectors * width);
}

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

template <class T>
__global__ void __launch_bounds__(kAttentionWarps* kWarp)
    attention_rows_kernel(AttentionCall<T> k, T* y, Accumulator<T>* lse) {
  const int row =
      static_cast<int>(blockIdx.x) * kAttentionWarps + static_cast<int>(threadIdx.x) / kWarp;
  if (row >= k.tokens) return;  // a whole warp, and no barrier follows
  const int64_t channels = k.channels(), stride = 3 * channels;
  const T* const q = k.qkv + k.offset(3);
  const Bounds bounds = k.bounds();
  attend_row(RowForward<T>{.q = q + row * stride,
                           .k = q + channels,
                           .v = q + 2 * channels,
                           .stride = stride,
                           .begin = bounds.first_of(row),
                           .end = bounds.last_of(row) + 1,
                           .width = k.width,
                           .scale = k.scale,
                           .y = y + k.offset(1) + row * channels,
                           .lse = lse + k.row_offset() + row},
             rows_scratch<Accumulator<T>>(2, k.width));
}

template <class T>
__device__ __forceinline__ void load_vector(Accumulator<T>* to, const T* from, int width) {
  for (int c = lane_of_warp(); c < width; c += kWarp) to[c] = wide(from[c]);
}

template <class T>
__device__ __forceinline__ void store_vector(T* to, const Accumulator<T>* from,
                                             Accumulator<T> factor, int width, bool accumulate) {
  for (int c = lane_of_warp(); c < width; c += kWarp) {
    const Accumulator<T> value = from[c] * factor;
    to[c] = narrow<T>(accumulate ? wide(to[c]) + value : value);
  }
}

// dq of one token: p_ij (dp_ij - delta_i) of 32 keys at a time.
template <class T>
__global__ void __launch_bounds__(kAttentionWarps* kWarp)
    attention_query_row_kernel(AttentionCall<T> k, AttentionGradients<T> g) {
  using A = Accumulator<T>;
  const int row =
      static_cast<int>(blockIdx.x) * kAttentionWarps + static_cast<int>(threadIdx.x) / kWarp;
  if (row >= k.tokens) return;  // a whole warp, and no barrier follows
  const int64_t channels = k.channels(), stride = 3 * channels;
  const T *const q = k.qkv + k.offset(3), *const keys = q + channels,
                 *const values = keys + channels;
  const Bounds bounds = k.bounds();
  A* const weights = rows_scratch<A>(3, k.width);
  A *const own_q = weights + kWarp, *const dy = own_q + k.width, *const dq = dy + k.width;
  load_vector(own_q, q + row * stride, k.width);
  load_vector(dy, g.dy + k.offset(1) + row * channels, k.width);
  __syncwarp();
  const A lse = g.lse[k.row_offset() + row], delta = g.delta[k.row_offset() + row];
  const int begin = bounds.first_of(row), end = bounds.last_of(row) + 1, lane = lane_of_warp();
  for (int key = begin; key < end; key += kWarp) {
    const int count = min(kWarp, end - key);
    if (lane < count) {
      const int64_t at = (key + lane) * stride;
      const A p = std::exp(k.scale * dot_of(own_q, keys + at, k.width) - lse);
      weights[lane] = p * (dot_of(dy, values + at, k.width) - delta);
    }
    __syncwarp();
    mix_rows(dq, key == begin ? A(0) : A(1), weights, keys + key * stride, stride, count, k.width);
    __syncwarp();
  }
  store_vector(g.dqkv + k.offset(3) + row * stride, dq, k.scale, k.width, g.accumulate);
}

// dk and dv of one token, from 32 of the queries that see it at a time.
template <class T>
__global__ void __launch_bounds__(kAttentionWarps* kWarp)
    attention_key_row_kernel(AttentionCall<T> k, AttentionGradients<T> g) {
  using A = Accumulator<T>;
  const int row =
      static_cast<int>(blockIdx.x) * kAttentionWarps + static_cast<int>(threadIdx.x) / kWarp;
  if (row >= k.tokens) return;  // a whole warp, and no barrier follows
  const int64_t channels = k.channels(), stride = 3 * channels;
  const T *const q = k.qkv + k.offset(3), *const dy = g.dy + k.offset(1);
  A* const weights = rows_scratch<A>(4, k.width);
  A *const own_k = weights + kWarp, *const own_v = own_k + k.width;
  A *const dk = own_v + k.width, *const dv = dk + k.width;
  load_vector(own_k, q + channels + row * stride, k.width);
  load_vector(own_v, q + 2 * channels + row * stride, k.width);
  __syncwarp();
  const QueryRange seeing(k.bounds(), row, row, k.tokens);
  const int lane = lane_of_warp();
  for (int query = seeing.begin; query < seeing.end; query += kWarp) {
    const int count = min(kWarp, seeing.end - query);
    const A keep = query == seeing.begin ? A(0) : A(1);
    const T *const queries = q + query * stride, *const dys = dy + query * channels;
    A ds = 0;
    if (lane < count) {
      const int64_t at = k.row_offset() + query + lane;
      const A p = std::exp(k.scale * dot_of(own_k, queries + lane * stride, k.width) - g.lse[at]);
      ds = p * (dot_of(own_v, dys + lane * channels, k.width) - g.delta[at]);
      weights[lane] = p;
    }
    __syncwarp();
    mix_rows(dv, keep, weights, dys, channels, count, k.width);
    __syncwarp();
    weights[lane] = ds;
    __syncwarp();
    mix_rows(dk, keep, weights, queries, stride, count, k.width);
    __syncwarp();
  }
  T* const to = g.dqkv + k.offset(3) + channels + row * stride;
  store_vector(to, dk, k.scale, k.width, g.accumulate);
  store_vector(to + channels, dv, A(1), k.width, g.accumulate);
}

}  // namespace anabranch::cuda
