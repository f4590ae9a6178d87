#include <algorithm>

#include "core/tensor/convert.h"
#include "core/tensor/elementwise.cuh"

namespace anabranch::cuda {
namespace {

template <class To, class From, bool kAdd>
struct Convert {
  To* to;
  const From* from;
  Accumulator<To> scale;  // of what is added

  template <int kN>
  __device__ void at(int64_t i) const {
    using A = Accumulator<To>;
    const Pack<From, kN> xs = load<kN>(from + i);
    Pack<To, kN> ys;
    if constexpr (kAdd) ys = load<kN>(to + i);
    for (int j = 0; j < kN; ++j) {
      const A x = static_cast<A>(wide(xs.v[j]));
      ys.v[j] = narrow<To>(kAdd ? wide(ys.v[j]) + scale * x : x);
    }
    store(to + i, ys);
  }
};

// As many elements to a thread as are 16 bytes of the wider type.
template <bool kAdd>
void run(Tensor& to, const Tensor& from, double scale) {
  dispatch(to.dtype(), [&]<class To>() {
    dispatch(from.dtype(), [&]<class From>() {
      const Convert<To, From, kAdd> k{to.device_data<To>(), from.device_data<From>(),
                                      static_cast<Accumulator<To>>(scale)};
      each_pack<std::min(kPack<To>, kPack<From>)>(k, to.count(), aligned_for_packs(k.to, k.from),
                                                  to.stream());
    });
  });
}

}  // namespace

void convert(Tensor& to, const Tensor& from) { run<false>(to, from, 1); }

void add_converted(Tensor& to, const Tensor& from, double scale) { run<true>(to, from, scale); }

}  // namespace anabranch::cuda
