#include "core/ops/adaptive_gate.h"
#include "core/ops/sigmoid.cuh"
#include "core/tensor/rows.cuh"

namespace anabranch::cuda {
namespace {

template <class A>
struct Scales {
  A sens, bias, mag;

  __device__ explicit Scales(const A* r)
      : sens(A(2) * sigmoid(r[0])), bias(std::tanh(r[1])), mag(A(2) * sigmoid(r[2])) {}
};

template <class T>
struct Rows {
  const T *f, *v;
  const Accumulator<T>* r;
  int64_t rows, width;
};

template <class T, int kN>
__global__ void __launch_bounds__(kRowWarps* kWarp) forward_kernel(T* y, Rows<T> k) {
  const int64_t row = warp_row(), at = row * k.width;
  if (row >= k.rows) return;
  const Scales<Accumulator<T>> s(k.r + 3 * row);
  for (int64_t c = lane_column<kN>(); c < k.width; c += kWarp * kN) {
    const Pack<T, kN> f = load<kN>(k.f + at + c), v = load<kN>(k.v + at + c);
    Pack<T, kN> out;
    for (int i = 0; i < kN; ++i) {
      out.v[i] = narrow<T>(wide(f.v[i]) * s.mag * sigmoid(s.sens * wide(v.v[i]) + s.bias));
    }
    store(y + at + c, out);
  }
}

template <class T>
struct Gradients {
  T *df, *dv;  // null if unwanted
  Accumulator<T>* dr;
  const T* dy;
};

// Reads dy, f and v once, and writes df and dv.
template <class T, int kN>
__global__ void __launch_bounds__(kRowWarps* kWarp) backward_kernel(Gradients<T> to, Rows<T> k) {
  using A = Accumulator<T>;
  const int64_t row = warp_row(), at = row * k.width;
  if (row >= k.rows) return;
  const Scales<A> s(k.r + 3 * row);
  A dsens = 0, dbias = 0, dmag = 0;
  for (int64_t c = lane_column<kN>(); c < k.width; c += kWarp * kN) {
    const Pack<T, kN> dy = load<kN>(to.dy + at + c), f = load<kN>(k.f + at + c),
                      v = load<kN>(k.v + at + c);
    Pack<T, kN> df, dv;
    for (int i = 0; i < kN; ++i) {
      const A q = sigmoid(s.sens * wide(v.v[i]) + s.bias), d = wide(dy.v[i]) * q;
      const A e = d * wide(f.v[i]) * s.mag * (A(1) - q);
      df.v[i] = narrow<T>(d * s.mag);
      dv.v[i] = narrow<T>(e * s.sens);
      dsens += e * wide(v.v[i]);
      dbias += e;
      dmag += d * wide(f.v[i]);
    }
    if (to.df != nullptr) store(to.df + at + c, df);
    if (to.dv != nullptr) store(to.dv + at + c, dv);
  }
  if (to.dr == nullptr) return;
  dsens = warp_sum(dsens);
  dbias = warp_sum(dbias);
  dmag = warp_sum(dmag);
  if (threadIdx.x % kWarp != 0) return;
  A* dr = to.dr + 3 * row;
  dr[0] = dsens * s.sens * (A(1) - s.sens / A(2));
  dr[1] = dbias * (A(1) - s.bias * s.bias);
  dr[2] = dmag * s.mag * (A(1) - s.mag / A(2));
}

template <class T>
Rows<T> rows_of(const Tensor& f, const Tensor& v, const Tensor& r) {
  return {f.device_data<T>(), v.device_data<T>(), r.device_data<Accumulator<T>>(), f.dim(0),
          f.dim(1)};
}

template <class T>
T* data_of(Tensor& t) {
  return t.empty() ? nullptr : t.device_data<T>();
}

}  // namespace

void adaptive_gate_forward(Tensor& y, const Tensor& f, const Tensor& v, const Tensor& r) {
  dispatch(f.dtype(), [&]<class T>() {
    const Rows<T> k = rows_of<T>(f, v, r);
    T* to = y.device_data<T>();
    with_packs<T>(k.width % kPack<T> == 0 && aligned_for_packs(to, k.f, k.v), [&]<int kN>() {
      launch<forward_kernel<T, kN>>(grid_of_rows(k.rows), y.stream(), to, k);
    });
  });
}

void adaptive_gate_backward(AdaptiveGradients& to, const Tensor& dy, const Tensor& f,
                            const Tensor& v, const Tensor& r) {
  dispatch(f.dtype(), [&]<class T>() {
    const Rows<T> k = rows_of<T>(f, v, r);
    const Gradients<T> d{data_of<T>(to.df), data_of<T>(to.dv), data_of<Accumulator<T>>(to.dr),
                         dy.device_data<T>()};
    const bool packs = aligned_for_packs(d.df, d.dv, d.dy, k.f, k.v);
    with_packs<T>(k.width % kPack<T> == 0 && packs, [&]<int kN>() {
      launch<backward_kernel<T, kN>>(grid_of_rows(k.rows), dy.stream(), d, k);
    });
  });
}

}  // namespace anabranch::cuda
