#include <utility>

#include "core/ops/attention.h"
#include "core/ops/attention_rows.cuh"
#include "core/ops/attention_tiles.cuh"

namespace anabranch::cuda {
namespace {

// delta[b, h, t] = y . dy of a token's head, by `lanes` lanes, a power of 2.
template <class T, int kN>
__global__ void __launch_bounds__(256)
    attention_delta_kernel(AttentionCall<T> k, const T* y, const T* dy, Accumulator<T>* delta,
                           int lanes) {
  const int64_t thread = int64_t{blockIdx.x} * blockDim.x + threadIdx.x, item = thread / lanes;
  const bool there = item < int64_t{k.batch} * k.tokens * k.heads;
  const int lane = static_cast<int>(thread % lanes);
  Accumulator<T> sum = 0;
  for (int c = lane * kN; there && c < k.width; c += lanes * kN) {
    const Pack<T, kN> a = load<kN>(y + item * k.width + c), b = load<kN>(dy + item * k.width + c);
    for (int i = 0; i < kN; ++i) sum += wide(a.v[i]) * wide(b.v[i]);
  }
  sum = group_sum(sum, lanes);
  if (!there || lane != 0) return;
  const int64_t row = item / k.heads, head = item % k.heads;
  delta[(row / k.tokens * k.heads + head) * k.tokens + row % k.tokens] = sum;
}

template <class T>
void find_delta(const AttentionCall<T>& k, const T* y, const T* dy, Accumulator<T>* delta,
                CUstream_st* stream) {
  constexpr int64_t kThreads = 256;
  const bool packs = k.packs && aligned_for_packs(y, dy);
  const int lanes = lanes_for(packs ? k.width / kPack<T> : k.width);
  const int64_t threads = int64_t{k.batch} * k.tokens * k.heads * lanes;
  const Grid grid{.blocks = dim3(static_cast<unsigned>((threads + kThreads - 1) / kThreads)),
                  .threads = dim3(kThreads)};
  if (packs) {
    return launch<attention_delta_kernel<T, kPack<T>>>(grid, stream, k, y, dy, delta, lanes);
  }
  launch<attention_delta_kernel<T, 1>>(grid, stream, k, y, dy, delta, lanes);
}

template <class T, int kWidth>
struct Tiling {
  static constexpr bool kTensorCores = std::is_same_v<T, Bf16>;
  static constexpr int kThreads = kTileThreads<T>, kWarps = kThreads / kWarp;
  static constexpr int kStride = kRowStride<T, kWidth>;
};

// Of the pass over keys, for the gradient of queries.
template <class T, int kWidth>
struct QueryTiling : Tiling<T, kWidth> {
  using Base = Tiling<T, kWidth>;
  static constexpr int kM = Base::kTensorCores ? 2 : 1;  // tiles of a warp's rows
  static constexpr int kRows = Base::kWarps * kM * kTile;
  static constexpr int kStep = Base::kTensorCores ? 32 : 128 / sizeof(T);       // in registers
  static constexpr int kMet = Base::kTensorCores && kWidth <= 64 ? 64 : kStep;  // in a tile
  static constexpr size_t kShared = size_t{2 * kRows + 4 * kMet} * Base::kStride * sizeof(T);
};

// Of the pass over queries, for the gradients of keys and values.
template <class T, int kWidth>
struct KeyTiling : Tiling<T, kWidth> {
  using Base = Tiling<T, kWidth>;
  static constexpr int kM = Base::kTensorCores && kWidth <= 64 ? 2 : 1;
  static constexpr int kRows = Base::kWarps * kM * kTile;
  static constexpr int kStep = Base::kTensorCores ? 32 : 16;  // in registers
  static constexpr int kMet = Base::kTensorCores ? 64 : 128 / sizeof(T);
  // Beside the sums of 16 rows of 96 columns there is room for their keys and values; beside those
  // of 32 of 64, or 16 of 128, there is none.
  static constexpr bool kHoldsRows = Base::kTensorCores && kWidth == 96;
  static constexpr size_t kShared =
      size_t{2 * kRows + 4 * kMet} * Base::kStride * sizeof(T) + 4 * kMet * sizeof(Accumulator<T>);
};

template <class T, int kM, int kN>
__device__ __forceinline__ void clear(Sum<T> (&sums)[kM][kN]) {
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int n = 0; n < kN; ++n) sums[m][n] = zero_sum<T>();
  }
}

template <class T, int kM>
__device__ __forceinline__ void set_all(T (&to)[kM][2], T value) {
#pragma unroll
  for (int m = 0; m < kM; ++m) to[m][0] = to[m][1] = value;
}

// ds_ij = p_ij (dp_ij - delta_i), dq_i = sum_j ds_ij k_j scale. A block has queries.
template <class T, int kWidth>
__global__ void __launch_bounds__((QueryTiling<T, kWidth>::kThreads))
    attention_query_gradients_kernel(AttentionCall<T> k, AttentionGradients<T> g) {
  using A = Accumulator<T>;
  using G = QueryTiling<T, kWidth>;
  constexpr int kTileSize = G::kMet * G::kStride;
  T* const queries = dynamic_shared<T>();
  T* const dys = queries + G::kRows * G::kStride;
  T* const keys = dys + G::kRows * G::kStride;  // two tiles, then two of values
  T* const values = keys + 2 * kTileSize;
  const Places<T> places;

  const int first = static_cast<int>(gridDim.x - 1 - blockIdx.x) * G::kRows;
  const int count = min(G::kRows, k.tokens - first);
  const Bounds bounds = k.bounds();
  const int key_begin = bounds.first_of(first), key_end = bounds.last_of(first + count - 1) + 1;
  const int64_t channels = k.channels(), stride = 3 * channels;
  const T* const q = k.qkv + k.offset(3);
  const auto ask = [&](int key, int stage) {
    const T* const from = q + channels + key * stride;
    T* const to = keys + stage * kTileSize;
    ask_for_rows<G::kMet, kWidth>(to, from, stride, k.tokens - key, k.width, k.packs);
    ask_for_rows<G::kMet, kWidth>(to + 2 * kTileSize, from + channels, stride, k.tokens - key,
                                  k.width, k.packs);
    commit_async();
  };
  ask_for_rows<G::kRows, kWidth>(queries, q + first * stride, stride, count, k.width, k.packs);
  ask_for_rows<G::kRows, kWidth>(dys, g.dy + k.offset(1) + first * channels, channels, count,
                                 k.width, k.packs);
  ask(key_begin, 0);

  // The warp's own rows.
  const int own = static_cast<int>(threadIdx.x) / kWarp * G::kM * kTile;
  const int begin = first + own, end = min(begin + G::kM * kTile, k.tokens);
  Sum<T> dq[G::kM][kWidth / kTile];
  clear<T>(dq);
  A lse[G::kM][2], delta[G::kM][2];  // lse in units of log 2
#pragma unroll
  for (int m = 0; m < G::kM; ++m) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int64_t at = k.row_offset() + min(begin + m * kTile + places.row(r), k.tokens - 1);
      lse[m][r] = g.lse[at] * std::numbers::log2e_v<A>;
      delta[m][r] = g.delta[at];
    }
  }
  const A log2_scale = k.scale * std::numbers::log2e_v<A>;
  wait_async<0>();
  __syncthreads();
  const OwnRows<T, kWidth, G::kM> own_q(queries + own * G::kStride), own_dy(dys + own * G::kStride);
  for (int key = key_begin, stage = 0; key < key_end; key += G::kMet, stage ^= 1) {
    if (key != key_begin) {
      wait_async<0>();
      __syncthreads();
    }
    if (key + G::kMet < key_end) ask(key + G::kMet, stage ^ 1);
    for (int part = 0; part < G::kMet; part += G::kStep) {
      const int at = (stage * G::kMet + part) * G::kStride, from = key + part;
      const Bounds::Seen seen = bounds.seen(begin, end, from, from + G::kStep);
      if (seen == Bounds::Seen::kNone) continue;
      Sum<T> s[G::kM][G::kStep / kTile], ds[G::kM][G::kStep / kTile];
      dot_products<T, kWidth>(s, own_q, keys + at);
      dot_products<T, kWidth>(ds, own_dy, values + at);
      if (seen == Bounds::Seen::kSome) hide_unseen<T>(s, bounds, begin, end, from, places);
#pragma unroll
      for (int m = 0; m < G::kM; ++m) {
#pragma unroll
        for (int n = 0; n < G::kStep / kTile; ++n) {
#pragma unroll
          for (int i = 0; i < 8; ++i) {
            const int r = Places<T>::row_slot(i);
            const A p = power_of_2(s[m][n].x[i] * log2_scale - lse[m][r]);
            ds[m][n].x[i] = p * (ds[m][n].x[i] - delta[m][r]);
          }
        }
      }
      add_weighted<T, kWidth>(dq, ds, keys + at);
    }
  }
  if (begin >= end) return;  // a whole warp, and no barrier follows
  A scale[G::kM][2];
  set_all(scale, k.scale);
  T* const kept = queries + own * G::kStride;
  keep_rows<kWidth, T, G::kM>(kept, dq, scale, places);
  store_rows<kWidth>(g.dqkv + k.offset(3) + begin * stride, stride, kept, end - begin, k.width,
                     k.packs, g.accumulate);
}

// Scores of keys `key` .. with queries from q on become weights p and their gradients ds; both are
// 0 where the key is not seen. `stats`: the queries' log-sum-exps and, kMet behind them, deltas.
template <class T, int kMet, int kM, int kN>
__device__ __forceinline__ void to_weights(Sum<T> (&s)[kM][kN], Sum<T> (&dp)[kM][kN],
                                           const Accumulator<T>* stats, Accumulator<T> log2_scale,
                                           const Places<T>& places) {
  using A = Accumulator<T>;
#pragma unroll
  for (int n = 0; n < kN; ++n) {
#pragma unroll
    for (int i = 0; i < 8; i += 2) {
      const int column = n * kTile + places.column(i);
      const Pack<A, 2> lse = load<2>(stats + column), delta = load<2>(stats + kMet + column);
#pragma unroll
      for (int m = 0; m < kM; ++m) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          A &score = s[m][n].x[i + e], &gradient = dp[m][n].x[i + e];
          score = power_of_2(score * log2_scale - lse.v[e] * std::numbers::log2e_v<A>);
          gradient = score * (gradient - delta.v[e]);
        }
      }
    }
  }
}

template <class T, int kM, int kN>
__device__ __forceinline__ void hide_unseeing(Sum<T> (&s)[kM][kN], const Bounds& bounds, int key,
                                              int q, int tokens, const Places<T>& places) {
  using A = Accumulator<T>;
#pragma unroll
  for (int n = 0; n < kN; ++n) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int query = q + n * kTile + places.column(i);
      const bool there = query < tokens;
      const int first = there ? bounds.first_of(query) : tokens;
      const int last = there ? bounds.last_of(query) : -1;
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        const int at = key + m * kTile + places.row(Places<T>::row_slot(i));
        if (at < first || at > last) s[m][n].x[i] = -std::numeric_limits<A>::infinity();
      }
    }
  }
}

// dv_j = sum_i p_ij dy_i, dk_j = sum_i ds_ij q_i scale. A block has keys; scores are held as keys x
// queries, so that they are left factors as they are.
template <class T, int kWidth>
__global__ void __launch_bounds__((KeyTiling<T, kWidth>::kThreads))
    attention_key_gradients_kernel(AttentionCall<T> k, AttentionGradients<T> g) {
  using A = Accumulator<T>;
  using G = KeyTiling<T, kWidth>;
  constexpr int kTileSize = G::kMet * G::kStride;
  T* const keys = dynamic_shared<T>();
  T* const values = keys + G::kRows * G::kStride;
  T* const queries = values + G::kRows * G::kStride;  // two tiles, then two of dy
  T* const dys = queries + 2 * kTileSize;
  A* const stats = reinterpret_cast<A*>(dys + 2 * kTileSize);  // [stage][lse, delta][kMet]
  const Places<T> places;

  const int first = static_cast<int>(blockIdx.x) * G::kRows;
  const int count = min(G::kRows, k.tokens - first);
  const Bounds bounds = k.bounds();
  const QueryRange seeing(bounds, first, first + count - 1, k.tokens);
  const int64_t channels = k.channels(), stride = 3 * channels;
  const T *const q = k.qkv + k.offset(3), *const dy = g.dy + k.offset(1);
  const auto ask = [&](int query, int stage) {
    const int rows = k.tokens - query;
    T* const to = queries + stage * kTileSize;
    ask_for_rows<G::kMet, kWidth>(to, q + query * stride, stride, rows, k.width, k.packs);
    ask_for_rows<G::kMet, kWidth>(to + 2 * kTileSize, dy + query * channels, channels, rows,
                                  k.width, k.packs);
    for (int i = static_cast<int>(threadIdx.x); i < 2 * G::kMet; i += G::kThreads) {
      const int row = i % G::kMet;
      A* const stat = stats + 2 * stage * G::kMet + i;
      const A* const from = (i < G::kMet ? g.lse : g.delta) + k.row_offset() + query + row;
      copy_async_or_zero<sizeof(A)>(stat, from, row < rows);
    }
    commit_async();
  };
  const T* const k_from = q + channels + first * stride;
  ask_for_rows<G::kRows, kWidth>(keys, k_from, stride, count, k.width, k.packs);
  ask_for_rows<G::kRows, kWidth>(values, k_from + channels, stride, count, k.width, k.packs);
  ask(seeing.begin, 0);

  // The warp's own rows.
  const int own = static_cast<int>(threadIdx.x) / kWarp * G::kM * kTile;
  const int begin = first + own, end = min(begin + G::kM * kTile, k.tokens);
  T *const kept_k = keys + own * G::kStride, *const kept_v = values + own * G::kStride;
  Sum<T> dk[G::kM][kWidth / kTile], dv[G::kM][kWidth / kTile];
  clear<T>(dk);
  clear<T>(dv);
  const A log2_scale = k.scale * std::numbers::log2e_v<A>;
  if constexpr (G::kHoldsRows) {
    wait_async<0>();
    __syncthreads();
  }
  const std::conditional_t<G::kHoldsRows, RowsHeld<T, kWidth, G::kM>, RowsInMemory<T, kWidth>>
      own_k(kept_k), own_v(kept_v);
  for (int query = seeing.begin, stage = 0; query < seeing.end; query += G::kMet, stage ^= 1) {
    wait_async<0>();
    __syncthreads();
    if (query + G::kMet < seeing.end) ask(query + G::kMet, stage ^ 1);
    for (int part = 0; part < G::kMet; part += G::kStep) {
      const int at = (stage * G::kMet + part) * G::kStride, from = query + part;
      const Bounds::Seen seen = begin < end
                                    ? bounds.seen(from, min(from + G::kStep, k.tokens), begin, end)
                                    : Bounds::Seen::kNone;
      if (seen == Bounds::Seen::kNone) continue;
      Sum<T> s[G::kM][G::kStep / kTile], ds[G::kM][G::kStep / kTile];
      dot_products<T, kWidth>(s, own_k, queries + at);
      dot_products<T, kWidth>(ds, own_v, dys + at);
      if (seen == Bounds::Seen::kSome) {
        hide_unseeing<T>(s, bounds, begin, from, k.tokens, places);
      }
      to_weights<T, G::kMet>(s, ds, stats + 2 * stage * G::kMet + part, log2_scale, places);
      add_weighted<T, kWidth>(dv, s, dys + at);
      add_weighted<T, kWidth>(dk, ds, queries + at);
    }
  }
  if (begin >= end) return;  // a whole warp, and no barrier follows
  A scale[G::kM][2], one[G::kM][2];
  set_all(scale, k.scale);
  set_all(one, A(1));
  keep_rows<kWidth, T, G::kM>(kept_k, dk, scale, places);
  keep_rows<kWidth, T, G::kM>(kept_v, dv, one, places);
  T* const to = g.dqkv + k.offset(3) + channels + begin * stride;
  store_rows<kWidth>(to, stride, kept_k, end - begin, k.width, k.packs, g.accumulate);
  store_rows<kWidth>(to + channels, stride, kept_v, end - begin, k.width, k.packs, g.accumulate);
}

template <class T>
struct Backward {
  AttentionCall<T> call;
  AttentionGradients<T> gradients;
  CUstream_st* stream;
};

// Kernels for heads of up to kWidth columns; those that are not there count as 0.
template <class T, int kWidth>
struct ByTiles {
  static bool fits(const Backward<T>& b) {
    if constexpr (kHasTiles<T, kWidth>) {
      const size_t shared =
          std::max(QueryTiling<T, kWidth>::kShared, KeyTiling<T, kWidth>::kShared);
      return b.call.width <= kWidth && shared <= shared_bytes_of_block();
    } else {
      return false;
    }
  }

  static void run(const Backward<T>& b) {
    if constexpr (kHasTiles<T, kWidth>) {
      using Q = QueryTiling<T, kWidth>;
      using K = KeyTiling<T, kWidth>;
      launch<attention_query_gradients_kernel<T, kWidth>>(
          b.call.grid(Q::kRows, Q::kThreads, Q::kShared), b.stream, b.call, b.gradients);
      launch<attention_key_gradients_kernel<T, kWidth>>(
          b.call.grid(K::kRows, K::kThreads, K::kShared), b.stream, b.call, b.gradients);
    }
  }
};

template <class T>
struct ByRows {
  // With room for so many vectors.
  static Grid grid(const Backward<T>& b, int64_t vectors) {
    return b.call.grid(kAttentionWarps, kAttentionWarps * kWarp,
                       rows_shared_bytes<Accumulator<T>>(vectors, b.call.width));
  }

  static bool fits(const Backward<T>& b) {
    return grid(b, 4).shared_bytes <= shared_bytes_of_block();
  }

  static void run(const Backward<T>& b) {
    launch<attention_query_row_kernel<T>>(grid(b, 3), b.stream, b.call, b.gradients);
    launch<attention_key_row_kernel<T>>(grid(b, 4), b.stream, b.call, b.gradients);
  }
};

}  // namespace

void attention_backward(GradSink& dqkv, const Tensor& dy, const Tensor& qkv,
                        const KeyBounds& bounds, const Tensor& y, const Tensor& lse) {
  dispatch(qkv.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    AttentionCall<T> call = attention_call<T>(qkv, bounds, lse);
    const T* const dys = dy.device_data<T>();
    T* const dxs = dqkv.out.device_data<T>();
    call.packs = call.packs && aligned_for_packs(dys, dxs);
    Tensor delta = lse.like("attention delta");
    A* const deltas = delta.device_data<A>();
    find_delta(call, y.device_data<T>(), dys, deltas, qkv.stream());
    run_first_that_fits<ByTiles<T, 64>, ByTiles<T, 96>, ByTiles<T, 128>, ByRows<T>>(
        Backward<T>{call, {dys, lse.device_data<A>(), deltas, dxs, dqkv.accumulate}, qkv.stream()});
  });
}

}  // namespace anabranch::cuda
