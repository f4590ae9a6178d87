#include <algorithm>

#include "core/ops/column_sums.cuh"
#include "core/ops/rows.h"
#include "core/tensor/elementwise.cuh"

namespace anabranch::cuda {
namespace {

template <class T, class X>
struct AddRow {
  T* y;
  const X* x;
  const Accumulator<T>* b;
  int64_t width;

  template <int kN>
  __device__ void at(int64_t n, int64_t c) const {
    using A = Accumulator<T>;
    const Pack<X, kN> xs = load<kN>(x + n * width + c);
    const Pack<A, kN> bs = load<kN>(b + c);
    Pack<T, kN> ys;
    for (int i = 0; i < kN; ++i) {
      ys.v[i] = narrow<T>(static_cast<A>(wide(xs.v[i])) + bs.v[i]);
    }
    store(y + n * width + c, ys);
  }
};

}  // namespace

void add_row(Tensor& y, const Tensor& x, const Tensor& b) {
  dispatch(y.dtype(), [&]<class T>() {
    dispatch(x.dtype(), [&]<class X>() {
      constexpr int kN = std::min(kPack<T>, kPack<X>);
      const AddRow<T, X> k{y.device_data<T>(), x.device_data<X>(), b.device_data<Accumulator<T>>(),
                           y.dim(1)};
      const bool packs = k.width % kN == 0 && aligned_for_packs(k.y, k.x, k.b);
      each_row<kN>(k, y.dim(0), k.width, packs, y.stream());
    });
  });
}

void add_row_backward(GradSink& db, const Tensor& dy) {
  dispatch(dy.dtype(), [&]<class T>() { column_sums<T>(db, dy, nullptr); });
}

}  // namespace anabranch::cuda
