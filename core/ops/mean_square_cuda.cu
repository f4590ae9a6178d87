#include "core/ops/mean_square.h"
#include "core/ops/squares.cuh"
#include "core/tensor/elementwise.cuh"

namespace anabranch::cuda {
namespace {

template <class A>
struct WriteMean {
  A* to;
  double count;

  __device__ void operator()(int, double sum) const { *to = static_cast<A>(sum / count); }
};

template <class A>
struct AddMultiple {
  A* dw;
  const A *dy, *w;
  double factor;  // of dy
  bool accumulate;

  template <int kN>
  __device__ void at(int64_t i) const {
    const A by = static_cast<A>(static_cast<double>(*dy) * factor);
    const Pack<A, kN> ws = load<kN>(w + i);
    Pack<A, kN> to;
    if (accumulate) to = load<kN>(dw + i);
    for (int j = 0; j < kN; ++j) to.v[j] = accumulate ? to.v[j] + by * ws.v[j] : by * ws.v[j];
    store(dw + i, to);
  }
};

}  // namespace

void mean_square_forward(Tensor& y, const Tensor& w) {
  dispatch(w.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    sum_squares(WriteMean<A>{y.device_data<A>(), static_cast<double>(w.count())}, w);
  });
}

void mean_square_backward(GradSink& dw, const Tensor& dy, const Tensor& w) {
  dispatch(w.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    const AddMultiple<A> k{dw.out.device_data<A>(), dy.device_data<A>(), w.device_data<A>(),
                           2 / static_cast<double>(w.count()), dw.accumulate};
    each_pack<kPack<A>>(k, w.count(), aligned_for_packs(k.dw, k.w), w.stream());
  });
}

}  // namespace anabranch::cuda
