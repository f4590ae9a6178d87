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
  int64_t count;
};

template <class T, int kN>
__device__ __forceinline__ void backward_at(const Backward<T>& k, int64_t at) {
  using A = Accumulator<T>;
  const Pack<T, kN> dy = load<kN>(k.dy + at), a = load<kN>(k.a + at), b = load<kN>(k.b + at);
  Pack<T, kN> da, db;
  for (int i = 0; i < kN; ++i) {
    const A s = sigmoid(wide(b.v[i])), d = wide(dy.v[i]) * s;
    da.v[i] = narrow<T>(d);
    db.v[i] = narrow<T>(d * wide(a.v[i]) * (A(1) - s));
  }
  if (k.da != nullptr) store(k.da + at, da);
  if (k.db != nullptr) store(k.db + at, db);
}

// One thread, kN elements; the last thread may have fewer.
template <class T, int kN>
__global__ void __launch_bounds__(kElementThreads) backward_kernel(Backward<T> k) {
  const int64_t first = (int64_t{blockIdx.x} * kElementThreads + threadIdx.x) * kN;
  if (first + kN <= k.count) return backward_at<T, kN>(k, first);
  for (int64_t i = first; i < k.count; ++i) backward_at<T, 1>(k, i);
}

}  // namespace

void sigmoid_gate_forward(Tensor& y, const Tensor& a, const Tensor& b) { each(Gate{}, y, a, &b); }

void sigmoid_gate_backward(Tensor& da, Tensor& db, const Tensor& dy, const Tensor& a,
                           const Tensor& b) {
  dispatch(dy.dtype(), [&]<class T>() {
    const Backward<T> k{da.empty() ? nullptr : da.device_data<T>(),
                        db.empty() ? nullptr : db.device_data<T>(),
                        dy.device_data<T>(),
                        a.device_data<T>(),
                        b.device_data<T>(),
                        dy.count()};
    with_packs<T>(aligned_for_packs(k.da, k.db, k.dy, k.a, k.b), [&]<int kN>() {
      launch<backward_kernel<T, kN>>(grid_of_elements(k.count, kN), dy.stream(), k);
    });
  });
}

}  // namespace anabranch::cuda
