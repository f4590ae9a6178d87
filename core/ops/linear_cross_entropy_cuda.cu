#include <algorithm>
#include <cmath>
#include <limits>

#include "core/cuda/reduce.cuh"
#include "core/ops/gemm.h"
#include "core/ops/linear_cross_entropy.h"
#include "core/tensor/elementwise.cuh"

namespace anabranch::cuda {
namespace {

constexpr int64_t kRowAlignment = 32;  // elements from row to row of logits are multiples of it

// The largest of some logits, and the sum of exp(logit - largest). No NaN or infinity gets lost in
// it: then the sum is NaN.
template <class A>
struct Peak {
  A top = std::numeric_limits<A>::lowest();
  A sum = 0;
};

template <class A>
__device__ __forceinline__ Peak<A> merged(Peak<A> a, Peak<A> b) {
  const A top = a.top > b.top ? a.top : b.top;
  return {top, a.sum * std::exp(a.top - top) + b.sum * std::exp(b.top - top)};
}

template <class A>
__device__ __forceinline__ Peak<A> warp_peak(Peak<A> peak) {
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    const Peak<A> other{__shfl_xor_sync(kAllLanes, peak.top, distance),
                        __shfl_xor_sync(kAllLanes, peak.sum, distance)};
    peak = merged(peak, other);
  }
  return peak;
}

// That of all of a block's threads, which all get it. For one use in a kernel.
template <int kWarps, class A>
__device__ __forceinline__ Peak<A> block_peak(Peak<A> peak) {
  static_assert(kWarps <= kWarp);
  auto& tops = shared<A[kWarps], struct Tops>();
  auto& sums = shared<A[kWarps], struct Sums>();
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  peak = warp_peak(peak);
  if (lane == 0) {
    tops[warp] = peak.top;
    sums[warp] = peak.sum;
  }
  __syncthreads();
  return warp_peak(lane < kWarps ? Peak<A>{tops[lane], sums[lane]} : Peak<A>{});
}

template <class T>
struct LogitRows {
  using A = Accumulator<T>;
  A* logits;  // [rows, stride]; with `gradients` their gradients take their place, of type T
  const int32_t* targets;
  double* losses;
  int64_t stride, V;
  double scale;
  A cap;  // for kCapped
  bool gradients;
};

// A logit as the loss sees it, and the slope of that.
template <class A>
struct Capped {
  A value, slope;
};

template <bool kCapped, class A>
__device__ __forceinline__ Capped<A> capped(A logit, A cap) {
  if constexpr (!kCapped) return {logit, A(1)};
  const A t = std::tanh(logit / cap);
  return {cap * t + (logit - logit), A(1) - t * t};  // NaN for infinity, which tanh hides
}

// Blocks that a multiprocessor is to hold at least: where a block has half its threads, the other
// half reads while this one waits at a barrier. Twice the registers of float64 leave room for one.
template <class T, int kWarps>
inline constexpr int kRowBlocks = kWarps == 32 && sizeof(T) < 8 ? 2 : 1;

// A block for a row. It is read twice, the second time mostly from the cache: so many threads have
// it that few rows are on their way at once. Moves 8 bytes of a logit or less, and its gradient.
template <class T, int kWarps, bool kCapped>
__global__ void __launch_bounds__(kWarps* kWarp, kRowBlocks<T, kWarps>)
    logit_rows_kernel(LogitRows<T> k) {
  using A = Accumulator<T>;
  constexpr int kN = 2 * kPack<A>;
  constexpr int64_t kSweep = kWarps * kWarp * kN;
  A* l = k.logits + int64_t{blockIdx.x} * k.stride;
  T* dl = reinterpret_cast<T*>(l);
  const int64_t target = k.targets[blockIdx.x], mine = threadIdx.x * kN;
  const bool counts = target >= 0 && target < k.V;
  Peak<A> peak;
  A at_target = 0;
  if (counts) {
    at_target = capped<kCapped>(l[target], k.cap).value;
    for (int64_t c = mine; c < k.V; c += kSweep) {
      const Pack<A, kN> raw = load<kN>(l + c);
      A x[kN], top = peak.top;
      for (int i = 0; i < kN; ++i) {
        x[i] = c + i < k.V ? capped<kCapped>(raw.v[i], k.cap).value
                           : -std::numeric_limits<A>::infinity();
        top = x[i] > top ? x[i] : top;
      }
      A sum = peak.sum * std::exp(peak.top - top);
      for (int i = 0; i < kN; ++i) sum += std::exp(x[i] - top);
      peak = {top, sum};
    }
  }
  peak = block_peak<kWarps>(peak);
  if (threadIdx.x == 0) {
    const double loss = std::log(double{peak.sum}) + double{peak.top - at_target};
    const double wrong = target == -1 ? 0.0 : std::numeric_limits<double>::quiet_NaN();
    k.losses[blockIdx.x] = counts ? loss : wrong;
  }
  if (!k.gradients) return;
  const A factor = static_cast<A>(k.scale / double{peak.sum}), scale = static_cast<A>(k.scale);
  for (int64_t first = 0; first < k.V; first += kSweep) {
    const int64_t c = first + mine;
    Pack<T, kN> d{};
    if (counts && c < k.V) {
      const Pack<A, kN> raw = load<kN>(l + c);
      for (int i = 0; i < kN; ++i) {
        const Capped<A> x = capped<kCapped>(raw.v[i], k.cap);
        const A hit = c + i == target ? scale : A(0);
        d.v[i] = narrow<T>((std::exp(x.value - peak.top) * factor - hit) * x.slope);
      }
    }
    // Narrower elements lie where others read logits of this sweep, never of a later one.
    if constexpr (sizeof(T) < sizeof(A)) __syncthreads();
    if (c < k.V) store_direct(dl + c, d);
  }
}

template <class T>
void finish_rows(const LogitRows<T>& k, int64_t rows, CUstream_st* stream) {
  constexpr int64_t kFew = 4096;  // logits that few threads are enough for
  constexpr int kManyWarps = 32, kFewWarps = 4;
  const auto run = [&]<int kWarps>() {
    const Grid grid{.blocks = dim3(static_cast<unsigned>(rows)), .threads = dim3(kWarps * kWarp)};
    if (k.cap == 0) return launch<logit_rows_kernel<T, kWarps, false>>(grid, stream, k);
    launch<logit_rows_kernel<T, kWarps, true>>(grid, stream, k);
  };
  k.V <= kFew ? run.template operator()<kFewWarps>() : run.template operator()<kManyWarps>();
}

template <class T>
void run(Tensor& losses, const Tensor& x, const Tensor& w, const Tensor& targets, double softcap,
         const CrossEntropyGradients* gradients) {
  using A = Accumulator<T>;
  constexpr int64_t kWidening = size_of(kDTypeOf<A>) / size_of(kDTypeOf<T>);
  const int64_t N = losses.count(), C = w.dim(1), V = w.dim(0);
  const int64_t stride = (V + kRowAlignment - 1) / kRowAlignment * kRowAlignment;
  const int64_t chunk = cross_entropy_rows(N, V, kDTypeOf<A>);
  Tensor logits = x.like({chunk, stride}, kDTypeOf<A>, "logits");
  A* l = logits.device_data<A>();
  Pool& pool = *x.pool();
  const T* table = w.device_data<T>();
  for (int64_t first = 0; first < N; first += chunk) {
    const int64_t rows = std::min(chunk, N - first);
    const T* hidden = x.device_data<T>() + first * C;
    gemm(pool, l, hidden, table, {.m = rows, .n = V, .k = C, .transpose_b = true, .ldc = stride});
    const LogitRows<T> k{l,
                         targets.device_data<int32_t>() + first,
                         losses.device_data<double>() + first,
                         stride,
                         V,
                         gradients != nullptr ? gradients->scale : 0,
                         static_cast<A>(softcap),
                         gradients != nullptr};
    finish_rows(k, rows, x.stream());
    if (gradients == nullptr) continue;
    const T* dl = reinterpret_cast<const T*>(l);
    const int64_t dl_stride = stride * kWidening;
    if (gradients->dx != nullptr) {
      gemm(pool, gradients->dx->device_data<T>() + first * C, dl, table,
           {.m = rows, .n = C, .k = V, .lda = dl_stride});
    }
    GradSink& dw = *gradients->dw;
    gemm(pool, dw.out.device_data<A>(), dl, hidden,
         {.m = V,
          .n = C,
          .k = rows,
          .transpose_a = true,
          .beta = dw.accumulate || first > 0 ? 1.0 : 0.0,
          .lda = dl_stride});
  }
}

constexpr int kSumThreads = 1024;

template <class A>
__global__ void __launch_bounds__(kSumThreads)
    loss_sum_kernel(A* y, const double* losses, int64_t rows, double scale) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < rows; i += kSumThreads) sum += losses[i];
  sum = block_sum<kSumThreads>(sum);
  if (threadIdx.x == 0) *y = static_cast<A>(sum * scale);
}

struct Cap {
  static constexpr int kInputs = 1;
  double cap;

  template <class A>
  __device__ A operator()(A x) const {
    return capped<true>(x, static_cast<A>(cap)).value;
  }
};

}  // namespace

void linear_cross_entropy(Tensor& losses, const Tensor& x, const Tensor& w, const Tensor& targets,
                          double softcap, const CrossEntropyGradients* gradients) {
  if (losses.count() == 0 && gradients != nullptr && !gradients->dw->accumulate) {
    gradients->dw->out.fill_zero();
  }
  dispatch(x.dtype(), [&]<class T>() { run<T>(losses, x, w, targets, softcap, gradients); });
}

void loss_sum(Tensor& y, const Tensor& losses, double scale) {
  const auto run_as = [&]<class A>() {
    launch<loss_sum_kernel<A>>({.threads = dim3(kSumThreads)}, y.stream(), y.device_data<A>(),
                               losses.device_data<double>(), losses.count(), scale);
  };
  y.dtype() == DType::kF64 ? run_as.template operator()<double>()
                           : run_as.template operator()<float>();
}

void cap_logits(Tensor& logits, double softcap) { each(Cap{softcap}, logits, logits); }

}  // namespace anabranch::cuda
