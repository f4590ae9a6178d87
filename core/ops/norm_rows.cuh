// The kernels of both normalisations, a warp for each row: layer_norm is kCentred, rms_norm is not
// and may lack a gain.
#pragma once

#include <cmath>

#include "core/ops/lane_sums.cuh"
#include "core/ops/row_blocks.cuh"
#include "core/tensor/pack.cuh"

namespace anabranch::cuda {

inline constexpr int kNormWarps = 8;  // at most, of a block

template <class T>
struct NormForward {
  T *y, *sum;               // sum: null without delta
  Accumulator<T>*mean, *r;  // mean: for kCentred
  int64_t stats_stride;     // between the rows of these
  const T *x, *delta;
  const Accumulator<T>*w, *b;  // w: null for a gain of 1; b: for kCentred
  int64_t rows, width;
  Accumulator<T> eps;
};

// Calls f(s, c) for the caller's columns c .. c + kN - 1 of each step s of a row of at most kSteps;
// without kSteps of a row of any width, and then s says nothing.
template <int kN, int kSteps, class F>
__device__ __forceinline__ void each_step(int width, const F& f) {
  const int first = lane_of_warp() * kN;
  if constexpr (kSteps == 0) {
    for (int c = first; c < width; c += kWarp * kN) f(0, c);
  } else {
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      const int c = first + s * kWarp * kN;
      if (c < width) f(s, c);
    }
  }
}

// A row of at most kHeld columns stays in registers: it is read once, all of it under way at once.
// Without kHeld it is read again from the cache where a further pass needs it.
template <class T, int kN, bool kCentred, int kHeld>
__global__ void __launch_bounds__(kNormWarps* kWarp) norm_forward_kernel(NormForward<T> k) {
  using A = Accumulator<T>;
  constexpr int kSteps = kHeld / (kWarp * kN);
  const int64_t row = int64_t{blockIdx.x} * kNormWarps + threadIdx.x / kWarp, at = row * k.width;
  if (row >= k.rows) return;  // a whole warp, and no barrier follows
  const int width = static_cast<int>(k.width);
  Pack<T, kN> held[kSteps > 0 ? kSteps : 1]{};
  const auto read = [&](const T* from, int s, int c) {
    return kSteps > 0 ? held[s] : load<kN>(from + at + c);
  };
  if constexpr (kSteps > 0) {
    each_step<kN, kSteps>(width, [&](int s, int c) { held[s] = load<kN>(k.x + at + c); });
  }
  if (k.delta != nullptr) {
    each_step<kN, kSteps>(width, [&](int s, int c) {
      const Pack<T, kN> x = read(k.x, s, c), delta = load<kN>(k.delta + at + c);
      Pack<T, kN> sum;
      for (int i = 0; i < kN; ++i) sum.v[i] = narrow<T>(wide(x.v[i]) + wide(delta.v[i]));
      store(k.sum + at + c, sum);
      if constexpr (kSteps > 0) held[s] = sum;
    });
  }
  const T* const x = k.delta != nullptr ? k.sum : k.x;
  // The mean of f over the row.
  const auto mean_of = [&](const auto& f) {
    A total = 0;
    each_step<kN, kSteps>(width, [&](int s, int c) {
      const Pack<T, kN> xs = read(x, s, c);
      for (int i = 0; i < kN; ++i) total += f(wide(xs.v[i]));
    });
    return warp_sum(total) / static_cast<A>(width);
  };
  A mean = 0;
  if constexpr (kCentred) mean = mean_of([](A v) { return v; });
  const A squares = mean_of([mean](A v) { return (v - mean) * (v - mean); });
  const A r = A(1) / std::sqrt(squares + k.eps);
  each_step<kN, kSteps>(width, [&](int s, int c) {
    const Pack<T, kN> xs = read(x, s, c);
    Pack<A, kN> w, b;
    if (k.w != nullptr) w = load<kN>(k.w + c);
    if constexpr (kCentred) b = load<kN>(k.b + c);
    Pack<T, kN> y;
    for (int i = 0; i < kN; ++i) {
      A value = (wide(xs.v[i]) - mean) * r;
      if (k.w != nullptr) value *= w.v[i];
      if constexpr (kCentred) value += b.v[i];
      y.v[i] = narrow<T>(value);
    }
    store(k.y + at + c, y);
  });
  if (threadIdx.x % kWarp != 0) return;
  if constexpr (kCentred) k.mean[row * k.stats_stride] = mean;
  k.r[row * k.stats_stride] = r;
}

template <class T>
struct NormBackward {
  T* dx;              // null if not wanted
  const T* residual;  // null, or added to dx; may be dx
  const T *dy, *x;
  const Accumulator<T>*mean, *r;  // mean: for kCentred
  int64_t stats_stride;
  const Accumulator<T>* w;   // null for a gain of 1
  Accumulator<T>* partials;  // [blocks, 2 if kCentred else 1, width]; null without a gain
  int64_t rows, rows_per_block, width;

  // That a warp has sums for: whole steps of 32 packs.
  [[nodiscard]] __host__ __device__ int64_t padded() const {
    constexpr int64_t kStep = kWarp * kPack<T>;
    return (width + kStep - 1) / kStep * kStep;
  }
};

// One row: its share of dw and db is added to `sums` [2 or 1, padded], at the places of its
// columns, if there are any. Reads the row again from the cache for dx.
template <class T, int kN, bool kCentred>
__device__ __forceinline__ void norm_backward_row(const NormBackward<T>& k, int64_t row,
                                                  Accumulator<T>* sums) {
  using A = Accumulator<T>;
  const T *dy = k.dy + row * k.width, *x = k.x + row * k.width;
  const A mean = kCentred ? k.mean[row * k.stats_stride] : A(0), r = k.r[row * k.stats_stride];
  const int first = lane_of_warp() * kN, columns = static_cast<int>(k.width);
  A g_sum = 0, gh_sum = 0;
  for (int c = first; c < columns; c += kWarp * kN) {
    const Pack<T, kN> dys = load<kN>(dy + c), xs = load<kN>(x + c);
    Pack<A, kN> w;
    if (k.w != nullptr) w = load<kN>(k.w + c);
    Pack<A, kN> of_w, of_b;
    for (int i = 0; i < kN; ++i) {
      const A d = wide(dys.v[i]), h = (wide(xs.v[i]) - mean) * r;
      const A g = k.w != nullptr ? d * w.v[i] : d;
      g_sum += g;
      gh_sum += g * h;
      of_w.v[i] = d * h;
      of_b.v[i] = d;
    }
    if (sums == nullptr) continue;
    A* const step = sums + (c - first);
    add_lane<kN>(step, of_w);
    if constexpr (kCentred) add_lane<kN>(step + k.padded(), of_b);
  }
  if (k.dx == nullptr) return;
  const A width = static_cast<A>(k.width);
  const A g_mean = kCentred ? warp_sum(g_sum) / width : A(0), gh_mean = warp_sum(gh_sum) / width;
  for (int c = first; c < columns; c += kWarp * kN) {
    const Pack<T, kN> dys = load<kN>(dy + c), xs = load<kN>(x + c);
    Pack<A, kN> w;
    if (k.w != nullptr) w = load<kN>(k.w + c);
    Pack<T, kN> dx = k.residual != nullptr ? load<kN>(k.residual + row * k.width + c) : xs;
    for (int i = 0; i < kN; ++i) {
      const A d = wide(dys.v[i]), h = (wide(xs.v[i]) - mean) * r;
      const A gradient = r * ((k.w != nullptr ? d * w.v[i] : d) - g_mean - h * gh_mean);
      dx.v[i] = narrow<T>(k.residual != nullptr ? wide(dx.v[i]) + gradient : gradient);
    }
    store(k.dx + row * k.width + c, dx);
  }
}

// A warp has sums of its own in dynamic shared memory; its lanes touch their own columns only.
template <class T, int kN, bool kCentred>
__global__ void __launch_bounds__(kNormWarps* kWarp) norm_backward_kernel(NormBackward<T> k) {
  using A = Accumulator<T>;
  const int64_t warps = blockDim.x / kWarp, warp = threadIdx.x / kWarp;
  const int64_t padded = k.padded(), sums_width = (kCentred ? 2 : 1) * padded;
  A* all = k.partials != nullptr ? dynamic_shared<A>() : nullptr;
  A* sums = all != nullptr ? all + warp * sums_width : nullptr;
  if (sums != nullptr) {
    for (int64_t c = threadIdx.x % kWarp; c < sums_width; c += kWarp) sums[c] = 0;
    __syncwarp();
  }
  const int64_t begin = int64_t{blockIdx.x} * k.rows_per_block;
  const int64_t end = begin + k.rows_per_block < k.rows ? begin + k.rows_per_block : k.rows;
  for (int64_t row = begin + warp; row < end; row += warps) {
    norm_backward_row<T, kN, kCentred>(k, row, sums);
  }
  if (all == nullptr) return;  // all threads of all blocks
  __syncthreads();
  A* const to = k.partials + int64_t{blockIdx.x} * (kCentred ? 2 : 1) * k.width;
  for (int64_t c = threadIdx.x; c < k.width; c += blockDim.x) {
    for (int64_t half = 0; half < (kCentred ? 2 : 1); ++half) {
      const A* const from = all + half * padded + column_place<kN, A>(c);
      A sum = from[0];
      for (int64_t i = 1; i < warps; ++i) sum += from[i * sums_width];
      to[half * k.width + c] = sum;
    }
  }
}

template <class T, bool kCentred>
void norm_forward(const NormForward<T>& k, CUstream_st* stream) {
  const Grid grid{.blocks = dim3(static_cast<unsigned>((k.rows + kNormWarps - 1) / kNormWarps)),
                  .threads = dim3(kNormWarps * kWarp)};
  const bool packs =
      k.width % kPack<T> == 0 && aligned_for_packs(k.y, k.sum, k.x, k.delta, k.w, k.b);
  if (!packs) return launch<norm_forward_kernel<T, 1, kCentred, 0>>(grid, stream, k);
  const auto run = [&]<int kHeld>() {
    launch<norm_forward_kernel<T, kPack<T>, kCentred, kHeld>>(grid, stream, k);
  };
  if (k.width <= 1024) return run.template operator()<1024>();
  if (k.width <= 2048) return run.template operator()<2048>();
  run.template operator()<0>();
}

// `blocks` of the partial sums. As many warps as fit their sums in shared memory of a size that
// every GPU has: another number would add them in another order.
template <class T, bool kCentred>
void norm_backward(const NormBackward<T>& k, int64_t blocks, CUstream_st* stream) {
  constexpr int64_t kShared = int64_t{48} << 10U;
  int64_t bytes = 0, warps = kNormWarps;
  if (k.partials != nullptr) {
    const int64_t of_warp = (kCentred ? 2 : 1) * k.padded() * int64_t{sizeof(Accumulator<T>)};
    if (const auto most = static_cast<int64_t>(shared_bytes_of_block()); of_warp > most) {
      AB_FAIL("[norm] rows of ", k.width, ", here padded to ", k.padded(), ", need ", of_warp,
              " bytes of shared memory; a block of this GPU has ", most);
    }
    while (warps > 1 && warps * of_warp > kShared) warps /= 2;
    bytes = warps * of_warp;
  }
  const Grid grid{.blocks = dim3(static_cast<unsigned>(blocks)),
                  .threads = dim3(static_cast<unsigned>(warps * kWarp)),
                  .shared_bytes = static_cast<size_t>(bytes)};
  const bool packs = k.width % kPack<T> == 0 && aligned_for_packs(k.dx, k.residual, k.dy, k.x, k.w);
  if (packs) return launch<norm_backward_kernel<T, kPack<T>, kCentred>>(grid, stream, k);
  launch<norm_backward_kernel<T, 1, kCentred>>(grid, stream, k);
}

template <class T>
const T* device_data_or_null(const Tensor& t) {
  return t.empty() ? nullptr : t.device_data<T>();
}

}  // namespace anabranch::cuda
