#include <algorithm>

#include "core/base/philox.h"
#include "core/ops/dropout.h"
#include "core/tensor/elementwise.cuh"

namespace anabranch::cuda {
namespace {

template <class T>
struct Mask {
  T* y;
  const T* x;
  uint64_t key, first;  // index of x[0] among the elements of the whole batch
  uint32_t threshold;
  Accumulator<T> scale;

  // kN is 1, or a multiple of 4 as `first` and i then are: whole blocks of Philox.
  template <int kN>
  __device__ void at(int64_t i) const {
    using A = Accumulator<T>;
    const uint64_t element = first + static_cast<uint64_t>(i);
    const Pack<T, kN> xs = load<kN>(x + i);
    Pack<T, kN> ys;
    for (int j = 0; j < kN; j += 4) {
      const PhiloxBlock words = philox(key, (element + static_cast<uint64_t>(j)) / 4);
      for (int l = 0; l < 4 && l < kN; ++l) {
        const uint32_t word = kN == 1 ? chosen(words, element % 4) : words[static_cast<size_t>(l)];
        const A scaled = wide(xs.v[j + l]) * scale;
        ys.v[j + l] = narrow<T>(word >= threshold ? scaled : A(0));
      }
    }
    store(y + i, ys);
  }

  // Without an index that is not known when it is compiled: that would put the words into memory.
  static __device__ uint32_t chosen(const PhiloxBlock& words, uint64_t which) {
    const uint32_t low = which == 0 ? words[0] : words[1], high = which == 2 ? words[2] : words[3];
    return which < 2 ? low : high;
  }
};

}  // namespace

void dropout(Tensor& y, const Tensor& x, double rate, DropoutKey key) {
  const auto threshold = static_cast<uint32_t>(std::min(rate * 0x1p32, 0x1p32 - 1));
  const auto first = static_cast<uint64_t>(key.first_row * x.dim(-1));
  dispatch(x.dtype(), [&]<class T>() {
    const Mask<T> k{y.device_data<T>(),
                    x.device_data<T>(),
                    key.key,
                    first,
                    threshold,
                    static_cast<Accumulator<T>>(1 / (1 - rate))};
    const bool packs = first % 4 == 0 && aligned_for_packs(k.y, k.x);
    each_pack<std::max(4, kPack<T>)>(k, x.count(), packs, x.stream());
  });
}

}  // namespace anabranch::cuda
