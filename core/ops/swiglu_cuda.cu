#include "core/ops/sigmoid.cuh"
#include "core/ops/swiglu.h"
#include "core/tensor/elementwise.cuh"

namespace anabranch::cuda {
namespace {

template <class T>
struct Forward {
  T* y;
  const T* x;
  int64_t width;  // of y

  template <int kN>
  __device__ void at(int64_t n, int64_t c) const {
    const T* row = x + 2 * n * width + c;
    const Pack<T, kN> gates = load<kN>(row), ups = load<kN>(row + width);
    Pack<T, kN> ys;
    for (int i = 0; i < kN; ++i) {
      const Accumulator<T> g = wide(gates.v[i]);
      ys.v[i] = narrow<T>(g * sigmoid(g) * wide(ups.v[i]));
    }
    store(y + n * width + c, ys);
  }
};

template <class T>
struct Backward {
  T* dx;
  const T *dy, *x;
  int64_t width;
  bool accumulate;

  template <int kN>
  __device__ void at(int64_t n, int64_t c) const {
    using A = Accumulator<T>;
    const int64_t gate = 2 * n * width + c, up = gate + width;
    const Pack<T, kN> gates = load<kN>(x + gate), ups = load<kN>(x + up);
    const Pack<T, kN> dys = load<kN>(dy + n * width + c);
    Pack<T, kN> dgates, dups;
    if (accumulate) {
      dgates = load<kN>(dx + gate);
      dups = load<kN>(dx + up);
    }
    for (int i = 0; i < kN; ++i) {
      const A g = wide(gates.v[i]), s = sigmoid(g), d = wide(dys.v[i]);
      const A to_gate = d * wide(ups.v[i]) * s * (A(1) + g * (A(1) - s)), to_up = d * g * s;
      dgates.v[i] = narrow<T>(accumulate ? wide(dgates.v[i]) + to_gate : to_gate);
      dups.v[i] = narrow<T>(accumulate ? wide(dups.v[i]) + to_up : to_up);
    }
    store(dx + gate, dgates);
    store(dx + up, dups);
  }
};

int64_t rows_of(const Tensor& y) { return y.dim(-1) == 0 ? 0 : y.count() / y.dim(-1); }

}  // namespace

void swiglu_forward(Tensor& y, const Tensor& x) {
  dispatch(x.dtype(), [&]<class T>() {
    const Forward<T> k{y.device_data<T>(), x.device_data<T>(), y.dim(-1)};
    const bool packs = k.width % kPack<T> == 0 && aligned_for_packs(k.y, k.x);
    each_row<kPack<T>>(k, rows_of(y), k.width, packs, x.stream());
  });
}

void swiglu_backward(GradSink& dx, const Tensor& dy, const Tensor& x) {
  dispatch(x.dtype(), [&]<class T>() {
    const Backward<T> k{dx.out.device_data<T>(), dy.device_data<T>(), x.device_data<T>(),
                        dy.dim(-1), dx.accumulate};
    const bool packs = k.width % kPack<T> == 0 && aligned_for_packs(k.dx, k.dy, k.x);
    each_row<kPack<T>>(k, rows_of(dy), k.width, packs, x.stream());
  });
}

}  // namespace anabranch::cuda
