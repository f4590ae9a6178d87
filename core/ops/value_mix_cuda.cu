#include <algorithm>
#include <bit>

#include "core/cuda/reduce.cuh"
#include "core/ops/sigmoid.cuh"
#include "core/ops/value_mix.h"
#include "core/tensor/elementwise.cuh"

namespace anabranch::cuda {
namespace {

template <class T>
struct Forward {
  T* y;
  const T *qkv, *e;
  const Accumulator<T>* logits;
  int64_t width, heads;  // of e
  int head_width;

  // A pack is of one head.
  template <int kN>
  __device__ void at(int64_t n, int64_t c) const {
    Pack<T, kN> values = load<kN>(qkv + n * 3 * width + c);
    const int64_t column = c - 2 * width;
    if (column >= 0) {
      const Pack<T, kN> es = load<kN>(e + n * width + column);
      const int head = static_cast<int>(column) / head_width;
      const Accumulator<T> gate = 2 * sigmoid(logits[n * heads + head]);
      for (int i = 0; i < kN; ++i) {
        values.v[i] = narrow<T>(wide(values.v[i]) + gate * wide(es.v[i]));
      }
    }
    store(y + n * 3 * width + c, values);
  }
};

constexpr int kThreads = 256;

template <class T>
struct Backward {
  T* de;
  Accumulator<T>* dlogits;
  const T *dy, *e;
  const Accumulator<T>* logits;
  int64_t rows, heads, head_width;
  int lanes;  // of a warp beside each other, for a head of a row
};

template <class T, int kN>
__global__ void __launch_bounds__(kThreads) backward_kernel(Backward<T> k) {
  using A = Accumulator<T>;
  const int64_t unit = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / k.lanes;
  const bool live = unit < k.rows * k.heads;
  const int64_t n = unit / k.heads, at = unit * k.head_width;      // of e
  const int64_t from = at + (2 * n + 2) * k.heads * k.head_width;  // of dv: past the row's q and k
  const int first = static_cast<int>(threadIdx.x) % k.lanes * kN;
  const A gate = live ? 2 * sigmoid(k.logits[unit]) : A(0);
  A dot = 0;
  for (int64_t c = first; live && c < k.head_width; c += k.lanes * kN) {
    const Pack<T, kN> dvs = load<kN>(k.dy + from + c), es = load<kN>(k.e + at + c);
    Pack<T, kN> des;
    for (int i = 0; i < kN; ++i) {
      const A d = wide(dvs.v[i]);
      dot += d * wide(es.v[i]);
      des.v[i] = narrow<T>(gate * d);
    }
    store(k.de + at + c, des);
  }
  dot = group_sum(dot, k.lanes);
  if (live && first == 0) k.dlogits[unit] = dot * gate * (A(1) - gate / A(2));
}

}  // namespace

void value_mix_forward(Tensor& y, const Tensor& qkv, const Tensor& e, const Tensor& logits) {
  dispatch(qkv.dtype(), [&]<class T>() {
    const int64_t C = e.dim(1), H = logits.dim(1);
    const Forward<T> k{y.device_data<T>(),
                       qkv.device_data<T>(),
                       e.device_data<T>(),
                       logits.device_data<Accumulator<T>>(),
                       C,
                       H,
                       static_cast<int>(C / H)};
    const bool packs = k.head_width % kPack<T> == 0 && aligned_for_packs(k.y, k.qkv, k.e);
    each_row<kPack<T>>(k, e.dim(0), 3 * C, packs, y.stream());
  });
}

void value_mix_backward(Tensor& de, Tensor& dlogits, const Tensor& dy, const Tensor& e,
                        const Tensor& logits) {
  dispatch(e.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    const int64_t H = logits.dim(1), D = e.dim(1) / H;
    Backward<T> k{de.device_data<T>(),
                  dlogits.device_data<A>(),
                  dy.device_data<T>(),
                  e.device_data<T>(),
                  logits.device_data<A>(),
                  e.dim(0),
                  H,
                  D,
                  1};
    const bool packs = D % kPack<T> == 0 && aligned_for_packs(k.de, k.dy, k.e);
    const int64_t pieces = std::clamp<int64_t>(packs ? D / kPack<T> : D, 1, kWarp);
    k.lanes = static_cast<int>(std::bit_ceil(static_cast<uint64_t>(pieces)));
    const int64_t threads = k.rows * H * k.lanes;
    const Grid grid{.blocks = dim3(static_cast<unsigned>((threads + kThreads - 1) / kThreads)),
                    .threads = dim3(kThreads)};
    if (packs) return launch<backward_kernel<T, kPack<T>>>(grid, dy.stream(), k);
    launch<backward_kernel<T, 1>>(grid, dy.stream(), k);
  });
}

}  // namespace anabranch::cuda
