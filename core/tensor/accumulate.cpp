#include "core/tensor/accumulate.h"

#include "core/base/build.h"
#include "core/base/parallel_for.h"
#include "core/tensor/convert.h"

namespace anabranch {
namespace {

constexpr int64_t kGrain = 1 << 14;

AB_CLONES void add_floats(float* y, const float* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] += x[i];
}

template <class T>
void add(T* y, const T* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    y[i] = T(static_cast<Accumulator<T>>(y[i]) + static_cast<Accumulator<T>>(x[i]));
  }
}

}  // namespace

void accumulate(Tensor& y, const Tensor& x) {
  AB_CHECK(y.count() == x.count() && y.dtype() == x.dtype(), "[accumulate] y is ",
           name_of(y.dtype()), y.shape(), " but x is ", name_of(x.dtype()), x.shape());
  if (y.device().is_cuda()) {
    if constexpr (build::kCuda) return cuda::add_converted(y, x, 1);
  }
  dispatch(y.dtype(), [&]<class T>() {
    T* to = y.data<T>();
    const T* from = x.data<T>();
    parallel_for(y.count(), kGrain, [=](int64_t begin, int64_t end) {
      if constexpr (std::is_same_v<T, float>) {
        add_floats(to + begin, from + begin, end - begin);
      } else {
        add(to + begin, from + begin, end - begin);
      }
    });
  });
}

}  // namespace anabranch
