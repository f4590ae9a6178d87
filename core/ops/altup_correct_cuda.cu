#include <utility>

#include "core/cuda/reduce.cuh"
#include "core/ops/altup_correct.h"
#include "core/ops/row_blocks.cuh"
#include "core/tensor/elementwise.cuh"

namespace anabranch::cuda {
namespace {

constexpr int kMostBlocks = 64;  // of the residual stream
constexpr int kSumThreads = 512;

template <class T>
struct Forward {
  T* corrected[kMostBlocks];
  const T* predicted[kMostBlocks];
  T* difference;
  const T* computed;
  const Accumulator<T>* g;
  int blocks, active;

  template <int kN>
  __device__ void at(int64_t i) const {
    using A = Accumulator<T>;
    const Pack<T, kN> xt = load<kN>(computed + i), xa = load<kN>(predicted[active] + i);
    Pack<T, kN> d;
    for (int j = 0; j < kN; ++j) d.v[j] = narrow<T>(wide(xt.v[j]) - wide(xa.v[j]));
    store(difference + i, d);
    for (int b = 0; b < blocks; ++b) {
      const A factor = g[b];
      Pack<T, kN> x = load<kN>(predicted[b] + i);
      for (int j = 0; j < kN; ++j) x.v[j] = narrow<T>(wide(x.v[j]) + factor * wide(d.v[j]));
      store(corrected[b] + i, x);
    }
  }
};

template <class T>
struct Backward {
  const T* dys[kMostBlocks];  // null for a block that nothing used
  T *dxt, *dxa;
  const T* difference;
  const Accumulator<T>* g;
  Accumulator<T>* partials;  // [thread blocks, K]
  int64_t count, steps;      // steps of a thread block
  int blocks, active;
};

// The shares of dg of these elements are added to `sums`, a thread's own, `stride` apart.
template <class T, int kN>
__device__ __forceinline__ void gradients_at(const Backward<T>& k, int64_t at, Accumulator<T>* sums,
                                             int stride) {
  using A = Accumulator<T>;
  const Pack<T, kN> difference = load<kN>(k.difference + at);
  A total[kN] = {}, mine[kN] = {};
  for (int i = 0; i < k.blocks; ++i) {
    if (k.dys[i] == nullptr) continue;
    const A g = k.g[i];
    const Pack<T, kN> dy = load<kN>(k.dys[i] + at);
    A dot = 0;
    for (int j = 0; j < kN; ++j) {
      const A d = wide(dy.v[j]);
      dot += d * wide(difference.v[j]);
      total[j] += g * d;
      if (i == k.active) mine[j] = d;
    }
    sums[i * stride] += dot;
  }
  Pack<T, kN> dxt, dxa;
  for (int j = 0; j < kN; ++j) {
    dxt.v[j] = narrow<T>(total[j]);
    dxa.v[j] = narrow<T>(mine[j] - wide(dxt.v[j]));
  }
  store(k.dxt + at, dxt);
  store(k.dxa + at, dxa);
}

// Reads each dy and the difference once. A thread has sums of its own, in shared memory, since the
// number of blocks is not known when this is compiled.
template <class T, int kN>
__global__ void __launch_bounds__(kSumThreads) backward_kernel(Backward<T> k) {
  using A = Accumulator<T>;
  A* all = dynamic_shared<A>();  // [K, threads]
  const int threads = static_cast<int>(blockDim.x), me = static_cast<int>(threadIdx.x);
  for (int i = 0; i < k.blocks; ++i) all[i * threads + me] = 0;
  for (int64_t step = 0; step < k.steps; ++step) {
    const int64_t first = ((blockIdx.x * k.steps + step) * threads + me) * kN;
    if (first + kN <= k.count) {
      gradients_at<T, kN>(k, first, all + me, threads);
    } else {
      for (int64_t i = first; i < k.count; ++i) gradients_at<T, 1>(k, i, all + me, threads);
    }
  }
  __syncthreads();
  for (int i = me / kWarp; i < k.blocks; i += threads / kWarp) {
    A sum = 0;
    for (int from = me % kWarp; from < threads; from += kWarp) sum += all[i * threads + from];
    sum = warp_sum(sum);
    if (me % kWarp == 0) k.partials[int64_t{blockIdx.x} * k.blocks + i] = sum;
  }
}

int blocks_of(const Tensor& g) {
  AB_CHECK(g.count() <= kMostBlocks, "[altup_correct] ", g.count(), " blocks; a GPU takes ",
           kMostBlocks);
  return static_cast<int>(g.count());
}

}  // namespace

void altup_correct_forward(AltupForward& op) {
  dispatch(op.difference.dtype(), [&]<class T>() {
    Forward<T> k{};
    k.blocks = blocks_of(op.g);
    k.active = static_cast<int>(op.active);
    k.difference = op.difference.device_data<T>();
    k.computed = std::as_const(op.computed).device_data<T>();
    k.g = std::as_const(op.g).device_data<Accumulator<T>>();
    bool packs = aligned_for_packs(k.difference, k.computed);
    for (size_t i = 0; i < op.predicted.size(); ++i) {
      k.corrected[i] = op.corrected[i].device_data<T>();
      k.predicted[i] = std::as_const(op.predicted[i]).device_data<T>();
      packs = packs && aligned_for_packs(k.corrected[i], k.predicted[i]);
    }
    each_pack<kPack<T>>(k, op.difference.count(), packs, op.difference.stream());
  });
}

void altup_correct_backward(AltupBackward& op) {
  dispatch(op.difference.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    Backward<T> k{};
    k.blocks = blocks_of(op.g);
    k.active = static_cast<int>(op.active);
    k.dxt = op.dxt.device_data<T>();
    k.dxa = op.dxa.device_data<T>();
    k.difference = std::as_const(op.difference).device_data<T>();
    k.g = std::as_const(op.g).device_data<A>();
    k.count = op.difference.count();
    bool packs = aligned_for_packs(k.dxt, k.dxa, k.difference);
    for (size_t i = 0; i < op.dys.size(); ++i) {
      if (op.dys[i].empty()) continue;
      k.dys[i] = op.dys[i].device_data<T>();
      packs = packs && aligned_for_packs(k.dys[i]);
    }
    constexpr int64_t kShared = int64_t{48} << 10U;
    const int64_t of_thread = k.blocks * int64_t{sizeof(A)};
    const int64_t threads = of_thread * kSumThreads <= kShared ? kSumThreads : kSumThreads / 4;
    with_packs<T>(packs, [&]<int kN>() {
      const GridRows steps((k.count + threads * kN - 1) / (threads * kN));
      k.steps = steps.per_block;
      Tensor partials = op.g.like({steps.count, k.blocks}, op.g.dtype(), "altup partials");
      k.partials = partials.device_data<A>();
      launch<backward_kernel<T, kN>>({.blocks = dim3(static_cast<unsigned>(steps.count)),
                                      .threads = dim3(static_cast<unsigned>(threads)),
                                      .shared_bytes = static_cast<size_t>(of_thread * threads)},
                                     op.dxt.stream(), k);
      add_partials<A>(op.dg, k.partials, steps.count, k.blocks);
    });
  });
}

}  // namespace anabranch::cuda
