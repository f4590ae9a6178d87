#include "core/ops/repeat_streams.h"
#include "core/tensor/elementwise.cuh"

namespace anabranch::cuda {
namespace {

// `streams` copies of `count` elements.
template <class T>
struct Repeat {
  T* to;
  const T* from;
  int64_t count, streams;

  template <int kN>
  __device__ void at(int64_t i) const {
    const Pack<T, kN> x = load<kN>(from + i);
    for (int64_t p = 0; p < streams; ++p) store(to + p * count + i, x);
  }
};

// Their sum, in their order.
template <class T>
struct Sum {
  T* to;
  const T* from;
  int64_t count, streams;

  template <int kN>
  __device__ void at(int64_t i) const {
    Accumulator<T> sums[kN] = {};
    for (int64_t p = 0; p < streams; ++p) {
      const Pack<T, kN> x = load<kN>(from + p * count + i);
      for (int j = 0; j < kN; ++j) sums[j] += wide(x.v[j]);
    }
    Pack<T, kN> sum;
    for (int j = 0; j < kN; ++j) sum.v[j] = narrow<T>(sums[j]);
    store(to + i, sum);
  }
};

// `one` is of one stream, `all` of all of them: copies lie aligned if their size is.
template <template <class> class F>
void run(Tensor& to, const Tensor& from, const Tensor& one, const Tensor& all) {
  const int64_t count = one.count();
  if (count == 0) return;
  dispatch(to.dtype(), [&]<class T>() {
    const F<T> f{to.device_data<T>(), from.device_data<T>(), count, all.count() / count};
    const bool packs = count % kPack<T> == 0 && aligned_for_packs(f.to, f.from);
    each_pack<kPack<T>>(f, count, packs, to.stream());
  });
}

}  // namespace

void repeat_streams(Tensor& y, const Tensor& x) { run<Repeat>(y, x, x, y); }

void sum_streams(Tensor& dx, const Tensor& dy) { run<Sum>(dx, dy, dx, dy); }

}  // namespace anabranch::cuda
