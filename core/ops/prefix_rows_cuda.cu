#include "core/ops/prefix_rows.h"
#include "core/tensor/rows.cuh"

namespace anabranch::cuda {
namespace {

// Where the C elements of a third of a row with prefixes come from: 0, K or V, or qkv.
template <class T>
struct Thirds {
  const T *qkv, *keys, *values;
  int64_t rows, prefix, each, width;  // rows of a sequence with its prefix; sequences of a prefix

  const __device__ T* operator()(int64_t third) const {
    const int64_t part = third % 3, sequence = third / 3 / rows, t = third / 3 % rows;
    if (t >= prefix) {
      const int64_t row = sequence * (rows - prefix) + t - prefix;
      return qkv + (row * 3 + part) * width;
    }
    const int64_t at = (sequence / each * prefix + t) * width;
    return part == 0 ? nullptr : (part == 1 ? keys : values) + at;
  }
};

// Where a row comes from that is `shift` further in its sequence; a negative place is 0.
template <class T>
struct Shifted {
  const T* from;
  int64_t to_rows, from_rows, shift, width;

  const __device__ T* operator()(int64_t row) const {
    const int64_t t = row % to_rows + shift;
    return t < 0 ? nullptr : from + (row / to_rows * from_rows + t) * width;
  }
};

// The gradients of keys and of values.
template <class T>
struct Gradients {
  Accumulator<T>* to[2];
  bool accumulate[2];
  const T* dy;
  int64_t rows, prefix, each, width, count;  // rows, count: of a sequence, of [P, n]
};

template <class T, int kN>
__global__ void __launch_bounds__(kRowWarps* kWarp) gradients_kernel(Gradients<T> k) {
  using A = Accumulator<T>;
  const int64_t row = warp_row();
  if (row >= 2 * k.count) return;
  const bool of_values = row >= k.count;
  const int64_t i = of_values ? row - k.count : row, p = i / k.prefix, t = i % k.prefix;
  const bool accumulate = of_values ? k.accumulate[1] : k.accumulate[0];
  A* out = (of_values ? k.to[1] : k.to[0]) + i * k.width;
  const int64_t third = of_values ? 2 : 1;
  for (int64_t c = lane_column<kN>(); c < k.width; c += kWarp * kN) {
    Pack<A, kN> sum{};
    if (accumulate) sum = load<kN>(out + c);
    for (int64_t b = 0; b < k.each; ++b) {
      const int64_t from = (p * k.each + b) * k.rows + t;
      const Pack<T, kN> dy = load<kN>(k.dy + (from * 3 + third) * k.width + c);
      for (int j = 0; j < kN; ++j) sum.v[j] += wide(dy.v[j]);
    }
    store(out + c, sum);
  }
}

}  // namespace

void with_prefix(Tensor& to, const Tensor& qkv, const Tensor& keys, const Tensor& values,
                 int64_t sequences) {
  const int64_t n = keys.dim(1), C = keys.dim(2);
  dispatch(to.dtype(), [&]<class T>() {
    const Thirds<T> thirds{qkv.device_data<T>(),
                           keys.device_data<T>(),
                           values.device_data<T>(),
                           to.dim(0) / sequences,
                           n,
                           sequences / keys.dim(0),
                           C};
    copy_rows(to.device_data<T>(), thirds, 3 * to.dim(0), C,
              aligned_for_packs(thirds.qkv, thirds.keys, thirds.values), to.stream());
  });
}

void prefix_gradients(GradSink& dkeys, GradSink& dvalues, const Tensor& dy, int64_t sequences) {
  const int64_t P = dkeys.out.dim(0), n = dkeys.out.dim(1), C = dkeys.out.dim(2);
  dispatch(dy.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    const Gradients<T> k{{dkeys.out.device_data<A>(), dvalues.out.device_data<A>()},
                         {dkeys.accumulate, dvalues.accumulate},
                         dy.device_data<T>(),
                         dy.dim(0) / sequences,
                         n,
                         sequences / P,
                         C,
                         P * n};
    with_packs<T>(C % kPack<T> == 0 && aligned_for_packs(k.to[0], k.to[1], k.dy), [&]<int kN>() {
      launch<gradients_kernel<T, kN>>(grid_of_rows(2 * k.count), dy.stream(), k);
    });
  });
}

void copy_own_rows(Tensor& to, const Tensor& from, int64_t sequences, int64_t prefix) {
  const bool gives = to.dim(0) > from.dim(0);  // `to` has the prefixes
  const int64_t C = to.dim(1);
  dispatch(to.dtype(), [&]<class T>() {
    const Shifted<T> shifted{from.device_data<T>(), to.dim(0) / sequences, from.dim(0) / sequences,
                             gives ? -prefix : prefix, C};
    copy_rows(to.device_data<T>(), shifted, to.dim(0), C, aligned_for_packs(shifted.from),
              to.stream());
  });
}

}  // namespace anabranch::cuda
