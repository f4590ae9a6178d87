#include <algorithm>
#include <cmath>

#include "core/ops/attention_rows.cuh"
#include "core/ops/cached_attention.h"

namespace anabranch::cuda {
namespace {

// Sequences of one launch: their lengths travel with it.
constexpr int kSequences = 64;

template <class T>
struct CachedCall {
  const T* qkv;          // [sequences, rows, 3C]
  T *keys, *values, *y;  // [sequences, capacity, C], the same, [sequences, rows, C]
  int64_t capacity;
  int sequences, rows, heads, width;
  Accumulator<T> scale;
  int past[kSequences], added[kSequences];

  [[nodiscard]] __device__ int64_t channels() const { return int64_t{heads} * width; }
};

// A block has one new token. Its key and value go to the cache.
template <class T>
__global__ void __launch_bounds__(256) cached_attention_append_kernel(CachedCall<T> k) {
  const int row = static_cast<int>(blockIdx.x), sequence = static_cast<int>(blockIdx.z);
  if (row >= k.added[sequence]) return;  // a whole block
  const int64_t channels = k.channels();
  const T* const from = k.qkv + (int64_t{sequence} * k.rows + row) * 3 * channels;
  const int64_t to = (sequence * k.capacity + k.past[sequence] + row) * channels;
  for (int64_t c = threadIdx.x; c < channels; c += blockDim.x) {
    k.keys[to + c] = from[channels + c];
    k.values[to + c] = from[2 * channels + c];
  }
}

// A warp has one head of one new token.
template <class T>
__global__ void __launch_bounds__(kAttentionWarps* kWarp) cached_attention_kernel(CachedCall<T> k) {
  const int row =
      static_cast<int>(blockIdx.x) * kAttentionWarps + static_cast<int>(threadIdx.x) / kWarp;
  const int sequence = static_cast<int>(blockIdx.z);
  if (row >= k.rows) return;  // a whole warp, and no barrier follows
  const int64_t channels = k.channels(), column = int64_t{blockIdx.y} * k.width;
  const int64_t token = int64_t{sequence} * k.rows + row;
  T* const y = k.y + token * channels + column;
  if (row >= k.added[sequence]) {
    for (int c = lane_of_warp(); c < k.width; c += kWarp) y[c] = T(Accumulator<T>(0));
    return;
  }
  const int64_t cached = sequence * k.capacity * channels + column;
  attend_row(RowForward<T>{.q = k.qkv + token * 3 * channels + column,
                           .k = k.keys + cached,
                           .v = k.values + cached,
                           .stride = channels,
                           .begin = 0,
                           .end = k.past[sequence] + row + 1,
                           .width = k.width,
                           .scale = k.scale,
                           .y = y,
                           .lse = nullptr},
             rows_scratch<Accumulator<T>>(2, k.width));
}

}  // namespace

void cached_attention(Tensor& y, const Tensor& qkv, KvCache& cache, int64_t heads,
                      std::span<const int64_t> counts) {
  const int64_t batch = cache.keys.dim(0), capacity = cache.keys.dim(1), c = cache.keys.dim(2);
  const int64_t rows = qkv.dim(0) / batch, width = c / heads;
  dispatch(qkv.dtype(), [&]<class T>() {
    for (int64_t begin = 0; begin < batch; begin += kSequences) {
      CachedCall<T> k{};
      k.qkv = qkv.device_data<T>() + begin * rows * 3 * c;
      k.keys = cache.keys.device_data<T>() + begin * capacity * c;
      k.values = cache.values.device_data<T>() + begin * capacity * c;
      k.y = y.device_data<T>() + begin * rows * c;
      k.capacity = capacity;
      k.sequences = static_cast<int>(std::min<int64_t>(kSequences, batch - begin));
      k.rows = static_cast<int>(rows);
      k.heads = static_cast<int>(heads);
      k.width = static_cast<int>(width);
      k.scale = static_cast<Accumulator<T>>(1 / std::sqrt(static_cast<double>(width)));
      for (int i = 0; i < k.sequences; ++i) {
        const auto sequence = static_cast<size_t>(begin + i);
        k.past[i] = static_cast<int>(cache.lengths[sequence]);
        k.added[i] = static_cast<int>(counts[sequence]);
      }
      const auto z = static_cast<unsigned>(k.sequences);
      launch<cached_attention_append_kernel<T>>(
          {.blocks = dim3(static_cast<unsigned>(rows), 1, z), .threads = dim3(256)}, y.stream(), k);
      launch<cached_attention_kernel<T>>(
          {.blocks = dim3(static_cast<unsigned>((rows + kAttentionWarps - 1) / kAttentionWarps),
                          static_cast<unsigned>(heads), z),
           .threads = dim3(kAttentionWarps * kWarp),
           .shared_bytes = rows_shared_bytes<Accumulator<T>>(2, width)},
          y.stream(), k);
    }
  });
}

}  // namespace anabranch::cuda
