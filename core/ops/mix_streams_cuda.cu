#include "core/ops/mix_streams.h"
#include "core/tensor/elementwise.cuh"
#include "core/tensor/rows.cuh"

namespace anabranch::cuda {
namespace {

constexpr int kTogether = 4;  // streams for which a row of dy is read once

// q_p = kept a_p + added, or 1 / P where a is null.
template <class A>
struct Weights {
  const A* a;  // [rows, P]
  int64_t streams;
  A kept, added;

  Weights(const Tensor& given, int64_t P, double smoothing)
      : a(given.empty() ? nullptr : given.device_data<A>()),
        streams(P),
        kept(A(1) - A(smoothing)),
        added((given.empty() ? A(1) : A(smoothing)) / A(P)) {}

  __device__ A at(int64_t row, int64_t p) const {
    return a != nullptr ? kept * a[row * streams + p] + added : added;
  }
};

template <class T>
struct Forward {
  T* y;
  const T* h;
  Weights<Accumulator<T>> q;
  int64_t width;

  template <int kN>
  __device__ void at(int64_t row, int64_t c) const {
    Accumulator<T> sums[kN] = {};
    for (int64_t p = 0; p < q.streams; ++p) {
      const Accumulator<T> weight = q.at(row, p);
      const Pack<T, kN> x = load<kN>(h + (row * q.streams + p) * width + c);
      for (int j = 0; j < kN; ++j) sums[j] += weight * wide(x.v[j]);
    }
    Pack<T, kN> sum;
    for (int j = 0; j < kN; ++j) sum.v[j] = narrow<T>(sums[j]);
    store(y + row * width + c, sum);
  }
};

template <class T>
struct Backward {
  T* dh;
  Accumulator<T>* da;  // null if unwanted: then h is not read
  const T *dy, *h;
  Weights<Accumulator<T>> q;
  int64_t rows, width;
};

template <class T, int kN>
__global__ void __launch_bounds__(kRowWarps* kWarp) mix_backward_kernel(Backward<T> k) {
  using A = Accumulator<T>;
  const int64_t row = warp_row(), streams = k.q.streams;
  if (row >= k.rows) return;
  for (int64_t first = 0; first < streams; first += kTogether) {
    A dots[kTogether] = {}, weights[kTogether] = {};
    for (int j = 0; j < kTogether; ++j) {
      if (first + j < streams) weights[j] = k.q.at(row, first + j);
    }
    for (int64_t c = lane_column<kN>(); c < k.width; c += kWarp * kN) {
      const Pack<T, kN> dy = load<kN>(k.dy + row * k.width + c);
      const int64_t at = (row * streams + first) * k.width + c;
      Pack<T, kN> h[kTogether];  // read before anything is written
      for (int j = 0; j < kTogether; ++j) {
        const bool read = k.da != nullptr && first + j < streams;
        h[j] = read ? load<kN>(k.h + at + j * k.width) : dy;
      }
      for (int j = 0; j < kTogether; ++j) {
        Pack<T, kN> dh;
        for (int i = 0; i < kN; ++i) {
          dh.v[i] = narrow<T>(weights[j] * wide(dy.v[i]));
          dots[j] += wide(dy.v[i]) * wide(h[j].v[i]);
        }
        if (first + j < streams) store(k.dh + at + j * k.width, dh);
      }
    }
    if (k.da == nullptr) continue;
    for (int j = 0; j < kTogether; ++j) {
      const A dot = warp_sum(dots[j]);
      const bool mine = static_cast<int>(threadIdx.x) % kWarp == j && first + j < streams;
      if (mine) k.da[row * streams + first + j] = k.q.kept * dot;
    }
  }
}

}  // namespace

void mix_streams_forward(Tensor& y, const Tensor& h, const Tensor& a, double smoothing) {
  const int64_t C = y.dim(1);
  dispatch(h.dtype(), [&]<class T>() {
    const Forward<T> f{y.device_data<T>(), h.device_data<T>(),
                       Weights<Accumulator<T>>(a, h.dim(1) / C, smoothing), C};
    const bool packs = C % kPack<T> == 0 && aligned_for_packs(f.y, f.h);
    each_row<kPack<T>>(f, y.dim(0), C, packs, y.stream());
  });
}

void mix_streams_backward(Tensor& dh, Tensor& da, const Tensor& dy, const Tensor& h,
                          const Tensor& a, double smoothing) {
  const int64_t rows = dy.dim(0), C = dy.dim(1);
  dispatch(h.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    const Backward<T> k{dh.device_data<T>(),
                        da.empty() ? nullptr : da.device_data<A>(),
                        dy.device_data<T>(),
                        h.device_data<T>(),
                        Weights<A>(a, h.dim(1) / C, smoothing),
                        rows,
                        C};
    with_packs<T>(C % kPack<T> == 0 && aligned_for_packs(k.dh, k.dy, k.h), [&]<int kN>() {
      launch<mix_backward_kernel<T, kN>>(grid_of_rows(rows), dh.stream(), k);
    });
  });
}

}  // namespace anabranch::cuda
