#include <utility>

#include "core/ops/attention.h"
#include "core/ops/attention_rows.cuh"
#include "core/ops/attention_tiles.cuh"

namespace anabranch::cuda {
namespace {

template <class T, int kWidth>
struct Tiling {
  static constexpr bool kTensorCores = std::is_same_v<T, Bf16>;
  static constexpr int kThreads = kTileThreads<T>, kWarps = kThreads / kWarp;
  static constexpr int kM = kTensorCores ? 2 : 1;  // tiles of a warp's rows
  static constexpr int kRows = kWarps * kM * kTile;
  static constexpr int kKeys = 128 / sizeof(T);                           // in shared memory
  static constexpr int kStep = kTensorCores && kWidth > 64 ? 32 : kKeys;  // in registers
  static constexpr int kStride = kRowStride<T, kWidth>;
  static constexpr size_t kShared = size_t{kRows + 4 * kKeys} * kStride * sizeof(T);
};

// What a warp keeps of its rows from tile to tile. The sums of weights are each lane's own.
template <class T, int kM, int kWidth>
struct Running {
  Sum<T> y[kM][kWidth / kTile];
  Accumulator<T> max[kM][2], sum[kM][2];
};

// One step of the online softmax of scores [kM x 16, kN x 16], which become weights:
//   m' = max(m, max_j s_j),  p_j = e^(scale (s_j - m')),  l = l e^(scale (m - m')) + sum_j p_j
template <class T, int kM, int kN, int kWidth>
__device__ __forceinline__ void softmax_step(Sum<T> (&s)[kM][kN], Running<T, kM, kWidth>& to,
                                             Accumulator<T> log2_scale, const Places<T>& places) {
  using A = Accumulator<T>;
  constexpr A kNothing = -std::numeric_limits<A>::infinity();
#pragma unroll
  for (int m = 0; m < kM; ++m) {
    A most[2] = {kNothing, kNothing}, origin[2], shrink[2];
#pragma unroll
    for (int n = 0; n < kN; ++n) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        A& row = most[Places<T>::row_slot(i)];
        row = std::fmax(row, s[m][n].x[i]);
      }
    }
    places.across(most, [](A a, A b) { return std::fmax(a, b); });
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const A was = to.max[m][r], now = std::fmax(was, most[r]);
      origin[r] = now == kNothing ? A(0) : now * log2_scale;  // no key seen yet: all weights are 0
      shrink[r] = power_of_2(was * log2_scale - origin[r]);
      to.max[m][r] = now;
      to.sum[m][r] *= shrink[r];
    }
#pragma unroll
    for (int n = 0; n < kN; ++n) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int r = Places<T>::row_slot(i);
        const A p = power_of_2(s[m][n].x[i] * log2_scale - origin[r]);
        s[m][n].x[i] = p;
        to.sum[m][r] += p;
      }
    }
    const bool same = shrink[0] == A(1) && shrink[1] == A(1);
    if (__all_sync(kAllLanes, same ? 1 : 0) != 0) continue;
#pragma unroll
    for (int c = 0; c < kWidth / kTile; ++c) {
#pragma unroll
      for (int i = 0; i < 8; ++i) to.y[m][c].x[i] *= shrink[Places<T>::row_slot(i)];
    }
  }
}

template <class T, int kM, int kWidth>
__device__ __forceinline__ void finish_rows(Running<T, kM, kWidth>& rows, Accumulator<T>* lse,
                                            int count, Accumulator<T> scale,
                                            const Places<T>& places, T* keep) {
  using A = Accumulator<T>;
  A inverse[kM][2];
#pragma unroll
  for (int m = 0; m < kM; ++m) {
    places.across(rows.sum[m], [](A a, A b) { return a + b; });
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = m * kTile + places.row(r);
      inverse[m][r] = A(1) / rows.sum[m][r];
      if (places.column(0) != 0 || row >= count) continue;  // one of the lanes that have the row
      lse[row] = rows.max[m][r] * scale + std::log(rows.sum[m][r]);
    }
  }
  keep_rows<kWidth, T, kM>(keep, rows.y, inverse, places);
}

// Reads qkv once for each block of queries, keys and values from the cache but once; writes y, lse.
template <class T, int kWidth>
__global__ void __launch_bounds__((Tiling<T, kWidth>::kThreads))
    attention_forward_kernel(AttentionCall<T> k, T* y, Accumulator<T>* lse) {
  using A = Accumulator<T>;
  using G = Tiling<T, kWidth>;
  constexpr int kTileSize = G::kKeys * G::kStride;
  T* const queries = dynamic_shared<T>();
  T* const keys = queries + G::kRows * G::kStride;  // two tiles, then two of values
  T* const values = keys + 2 * kTileSize;
  const Places<T> places;
  if constexpr (G::kTensorCores) {  // by one block; a backward comes behind a forward
    const bool checks = blockIdx.x + blockIdx.y + blockIdx.z == 0;
    if (checks) check_places(reinterpret_cast<A*>(keys + kTileSize));
  }

  // The last queries see the most keys: they begin first.
  const int first = static_cast<int>(gridDim.x - 1 - blockIdx.x) * G::kRows;
  const int count = min(G::kRows, k.tokens - first);
  const Bounds bounds = k.bounds();
  const int key_begin = bounds.first_of(first), key_end = bounds.last_of(first + count - 1) + 1;
  const int64_t channels = k.channels(), stride = 3 * channels;
  const T* const q = k.qkv + k.offset(3);
  const auto ask = [&](int key, int stage) {
    const int64_t at = key * stride;
    T* const to = keys + stage * kTileSize;
    ask_for_rows<G::kKeys, kWidth>(to, q + channels + at, stride, k.tokens - key, k.width, k.packs);
    ask_for_rows<G::kKeys, kWidth>(to + 2 * kTileSize, q + 2 * channels + at, stride,
                                   k.tokens - key, k.width, k.packs);
    commit_async();
  };
  ask_for_rows<G::kRows, kWidth>(queries, q + first * stride, stride, count, k.width, k.packs);
  ask(key_begin, 0);

  // The warp's own rows.
  const int own = static_cast<int>(threadIdx.x) / kWarp * G::kM * kTile;
  const int begin = first + own, end = min(begin + G::kM * kTile, k.tokens);
  Running<T, G::kM, kWidth> rows;
#pragma unroll
  for (int m = 0; m < G::kM; ++m) {
#pragma unroll
    for (int c = 0; c < kWidth / kTile; ++c) rows.y[m][c] = zero_sum<T>();
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      rows.max[m][r] = -std::numeric_limits<A>::infinity();
      rows.sum[m][r] = 0;
    }
  }
  wait_async<0>();
  __syncthreads();
  const OwnRows<T, kWidth, G::kM> left(queries + own * G::kStride);
  const A log2_scale = k.scale * std::numbers::log2e_v<A>;
  for (int key = key_begin, stage = 0; key < key_end; key += G::kKeys, stage ^= 1) {
    if (key != key_begin) {
      wait_async<0>();
      __syncthreads();
    }
    if (key + G::kKeys < key_end) ask(key + G::kKeys, stage ^ 1);
    for (int part = 0; part < G::kKeys; part += G::kStep) {
      const int at = (stage * G::kKeys + part) * G::kStride, from = key + part;
      const Bounds::Seen seen = bounds.seen(begin, end, from, from + G::kStep);
      if (seen == Bounds::Seen::kNone) continue;
      Sum<T> s[G::kM][G::kStep / kTile];
      dot_products<T, kWidth>(s, left, keys + at);
      if (seen == Bounds::Seen::kSome) hide_unseen<T>(s, bounds, begin, end, from, places);
      softmax_step<T>(s, rows, log2_scale, places);
      add_weighted<T, kWidth>(rows.y, s, values + at);
    }
  }
  if (begin >= end) return;  // a whole warp, and no barrier follows
  T* const kept = queries + own * G::kStride;
  finish_rows<T>(rows, lse + k.row_offset() + begin, end - begin, k.scale, places, kept);
  store_rows<kWidth>(y + k.offset(1) + begin * channels, channels, kept, end - begin, k.width,
                     k.packs, false);
}

template <class T>
struct Forward {
  AttentionCall<T> call;
  T* y;
  Accumulator<T>* lse;
  CUstream_st* stream;
};

// A kernel for heads of up to kWidth columns; those that are not there count as 0.
template <class T, int kWidth>
struct ByTiles {
  static bool fits(const Forward<T>& f) {
    if constexpr (kHasTiles<T, kWidth>) {
      return f.call.width <= kWidth && Tiling<T, kWidth>::kShared <= shared_bytes_of_block();
    } else {
      return false;
    }
  }

  static void run(const Forward<T>& f) {
    if constexpr (kHasTiles<T, kWidth>) {
      using G = Tiling<T, kWidth>;
      launch<attention_forward_kernel<T, kWidth>>(f.call.grid(G::kRows, G::kThreads, G::kShared),
                                                  f.stream, f.call, f.y, f.lse);
    }
  }
};

template <class T>
struct ByRows {
  static size_t shared(const Forward<T>& f) {
    return rows_shared_bytes<Accumulator<T>>(2, f.call.width);
  }

  static bool fits(const Forward<T>& f) { return shared(f) <= shared_bytes_of_block(); }

  static void run(const Forward<T>& f) {
    launch<attention_rows_kernel<T>>(
        f.call.grid(kAttentionWarps, kAttentionWarps * kWarp, shared(f)), f.stream, f.call, f.y,
        f.lse);
  }
};

}  // namespace

void attention_forward(Tensor& y, Tensor& lse, const Tensor& qkv, const KeyBounds& bounds) {
  dispatch(qkv.dtype(), [&]<class T>() {
    const Forward<T> f{attention_call<T>(qkv, bounds, lse), y.device_data<T>(),
                       lse.device_data<Accumulator<T>>(), y.stream()};
    run_first_that_fits<ByTiles<T, 64>, ByTiles<T, 96>, ByTiles<T, 128>, ByRows<T>>(f);
  });
}

}  // namespace anabranch::cuda
