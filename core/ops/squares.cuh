// The sum of squares, as squared_norm and mean_square have it.
#pragma once

#include "core/ops/whole_sums.cuh"
#include "core/tensor/pack.cuh"

namespace anabranch::cuda {

template <class T>
struct Squares {
  using Sum = double;
  static constexpr int kSums = 1;
  const T* x;

  template <int kN>
  __device__ void add(int64_t i, double* sums) const {
    const Pack<T, kN> xs = load<kN>(x + i);
    for (int j = 0; j < kN; ++j) {
      const auto value = static_cast<double>(wide(xs.v[j]));
      sums[0] += value * value;
    }
  }
};

// write(0, the sum) is called on the GPU.
template <class Write>
void sum_squares(const Write& write, const Tensor& x) {
  dispatch(x.dtype(), [&]<class T>() {
    const Squares<T> k{x.device_data<T>()};
    whole_sums<kPack<T>>(k, write, x.count(), aligned_for_packs(k.x), x);
  });
}

}  // namespace anabranch::cuda
