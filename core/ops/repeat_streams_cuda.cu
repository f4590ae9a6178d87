#include "core/ops/repeat_streams.h"
#include "core/tensor/elementwise.cuh"

namespace anabranch::cuda {
namespace {

// `streams` copies of `count` elements, or back: the sum of the copies in their order.
template <class T>
struct Streams {
  T* to;
  const T* from;
  int64_t count, streams;
};

template <class T, int kN>
__global__ void __launch_bounds__(kElementThreads) repeat_kernel(Streams<T> k) {
  const int64_t i = (int64_t{blockIdx.x} * kElementThreads + threadIdx.x) * kN;
  if (i >= k.count) return;
  const Pack<T, kN> x = load<kN>(k.from + i);
  for (int64_t p = 0; p < k.streams; ++p) store(k.to + p * k.count + i, x);
}

template <class T, int kN>
__global__ void __launch_bounds__(kElementThreads) sum_kernel(Streams<T> k) {
  const int64_t i = (int64_t{blockIdx.x} * kElementThreads + threadIdx.x) * kN;
  if (i >= k.count) return;
  Accumulator<T> sums[kN] = {};
  for (int64_t p = 0; p < k.streams; ++p) {
    const Pack<T, kN> x = load<kN>(k.from + p * k.count + i);
    for (int j = 0; j < kN; ++j) sums[j] += wide(x.v[j]);
  }
  Pack<T, kN> sum;
  for (int j = 0; j < kN; ++j) sum.v[j] = narrow<T>(sums[j]);
  store(k.to + i, sum);
}

// Whether either kernel may take packs.
template <class T>
bool packs(const Streams<T>& k) {
  return k.count % kPack<T> == 0 && aligned_for_packs(k.to, k.from);
}

}  // namespace

void repeat_streams(Tensor& y, const Tensor& x) {
  if (x.count() == 0) return;
  dispatch(x.dtype(), [&]<class T>() {
    const Streams<T> k{y.device_data<T>(), x.device_data<T>(), x.count(), y.count() / x.count()};
    with_packs<T>(packs(k), [&]<int kN>() {
      launch<repeat_kernel<T, kN>>(grid_of_elements(k.count, kN), y.stream(), k);
    });
  });
}

void sum_streams(Tensor& dx, const Tensor& dy) {
  if (dx.count() == 0) return;
  dispatch(dx.dtype(), [&]<class T>() {
    const Streams<T> k{dx.device_data<T>(), dy.device_data<T>(), dx.count(),
                       dy.count() / dx.count()};
    with_packs<T>(packs(k), [&]<int kN>() {
      launch<sum_kernel<T, kN>>(grid_of_elements(k.count, kN), dx.stream(), k);
    });
  });
}

}  // namespace anabranch::cuda
