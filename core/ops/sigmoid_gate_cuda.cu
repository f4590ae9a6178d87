#include "core/ops/sigmoid.cuh"
#include "core/ops/sigmoid_gate.h"
#include "core/tensor/elementwise.cuh"

namespace anabranch::cuda {
namespace {

struct Gate {
  static constexpr int kInputs = 2;

  template <class A>
  __device__ A operator()(A a, A b) const {
    return a * sigmoid(b);
  }
};

template <class T>
struct Backward {
  T *da, *db;  // null if unwanted
  const T *dy, *a, *b;

  template <int kN>
  __device__ void at(int64_t i) const {
    using A = Accumulator<T>;
    const Pack<T, kN> dys = load<kN>(dy + i), as = load<kN>(a + i), bs = load<kN>(b + i);
    Pack<T, kN> das, dbs;
    for (int j = 0; j < kN; ++j) {
      const A s = sigmoid(wide(bs.v[j])), d = wide(dys.v[j]) * s;
      das.v[j] = narrow<T>(d);
      dbs.v[j] = narrow<T>(d * wide(as.v[j]) * (A(1) - s));
    }
    if (da != nullptr) store(da + i, das);
    if (db != nullptr) store(db + i, dbs);
  }
};

}  // namespace

void sigmoid_gate_forward(Tensor& y, const Tensor& a, const Tensor& b) { each(Gate{}, y, a, &b); }

void sigmoid_gate_backward(Tensor& da, Tensor& db, const Tensor& dy, const Tensor& a,
                           const Tensor& b) {
  dispatch(dy.dtype(), [&]<class T>() {
    const Backward<T> k{da.empty() ? nullptr : da.device_data<T>(),
                        db.empty() ? nullptr : db.device_data<T>(), dy.device_data<T>(),
                        a.device_data<T>(), b.device_data<T>()};
    each_pack<kPack<T>>(k, dy.count(), aligned_for_packs(k.da, k.db, k.dy, k.a, k.b), dy.stream());
  });
}

}  // namespace anabranch::cuda
