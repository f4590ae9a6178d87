#include <cmath>

#include "core/cuda/reduce.cuh"
#include "core/ops/qk_norm.h"
#include "core/tensor/pack.cuh"

namespace anabranch::cuda {
namespace {

constexpr int kThreads = 256;

// Heads lie one after the other: 3H a row, of which the last H are copied.
template <class T>
struct Heads {
  T* out;
  const T *in, *y;  // y: backward alone
  Accumulator<T>* r;
  int64_t rows;
  int heads, width, lanes;  // 2H; D; lanes of a head
  Accumulator<T> eps;

  [[nodiscard]] __device__ int64_t count() const { return rows * (heads + heads / 2); }
};

// One head for a group of lanes. Reads each input once from memory, and again from the cache.
template <class T, int kN, bool kBack>
__global__ void __launch_bounds__(kThreads) qk_norm_kernel(Heads<T> k) {
  using A = Accumulator<T>;
  const int64_t thread = int64_t{blockIdx.x} * kThreads + threadIdx.x, head = thread / k.lanes;
  const int lane = static_cast<int>(thread % k.lanes), of_row = k.heads + k.heads / 2;
  const bool there = head < k.count(), normed = there && head % of_row < k.heads;
  const int64_t at = head * k.width;
  A sum = 0;
  for (int c = lane * kN; normed && c < k.width; c += k.lanes * kN) {
    const Pack<T, kN> a = load<kN>(k.in + at + c);
    const Pack<T, kN> b = kBack ? load<kN>(k.y + at + c) : a;
    for (int i = 0; i < kN; ++i) sum += wide(a.v[i]) * wide(b.v[i]);
  }
  const A mean = group_sum(sum, k.lanes) / static_cast<A>(k.width);
  if (!there || (kBack && !normed && k.out == k.in)) return;  // no collective follows
  A r = 1;
  if (normed) {
    A* const kept = k.r + head / of_row * k.heads + head % of_row;
    r = kBack ? *kept : A(1) / std::sqrt(mean + k.eps);
    if (!kBack && lane == 0) *kept = r;
  }
  for (int c = lane * kN; c < k.width; c += k.lanes * kN) {
    Pack<T, kN> a = load<kN>(k.in + at + c);
    const Pack<T, kN> b = kBack && normed ? load<kN>(k.y + at + c) : a;
    for (int i = 0; normed && i < kN; ++i) {
      const A value = wide(a.v[i]);
      a.v[i] = narrow<T>(r * (kBack ? value - wide(b.v[i]) * mean : value));
    }
    store(k.out + at + c, a);
  }
}

template <bool kBack, class T>
void run(Heads<T> k, CUstream_st* stream) {
  const bool packs = k.width % kPack<T> == 0 && aligned_for_packs(k.out, k.in, k.y);
  k.lanes = lanes_for(packs ? k.width / kPack<T> : k.width);
  const int64_t threads = k.rows * (k.heads + k.heads / 2) * k.lanes;
  const Grid grid{.blocks = dim3(static_cast<unsigned>((threads + kThreads - 1) / kThreads)),
                  .threads = dim3(kThreads)};
  if (packs) return launch<qk_norm_kernel<T, kPack<T>, kBack>>(grid, stream, k);
  launch<qk_norm_kernel<T, 1, kBack>>(grid, stream, k);
}

}  // namespace

void qk_norm_forward(Tensor& y, Tensor& r, const Tensor& qkv, double eps) {
  dispatch(qkv.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    const int64_t heads = r.dim(1), width = qkv.dim(1) / 3 * 2 / heads;
    run<false>(
        Heads<T>{y.device_data<T>(), qkv.device_data<T>(), nullptr, r.device_data<A>(), qkv.dim(0),
                 static_cast<int>(heads), static_cast<int>(width), 1, static_cast<A>(eps)},
        y.stream());
  });
}

void qk_norm_backward(Tensor& dx, const Tensor& dy, const Tensor& y, const Tensor& r) {
  dispatch(y.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    const int64_t heads = r.dim(1), width = y.dim(1) / 3 * 2 / heads;
    A* const kept = const_cast<A*>(r.device_data<A>());  // only read
    run<true>(Heads<T>{dx.device_data<T>(), dy.device_data<T>(), y.device_data<T>(), kept, y.dim(0),
                       static_cast<int>(heads), static_cast<int>(width), 1, A(0)},
              dx.stream());
  });
}

}  // namespace anabranch::cuda
