#include "core/tensor/convert.h"

#include "core/base/build.h"
#include "core/base/parallel_for.h"

namespace anabranch {
namespace {

constexpr int64_t kGrain = 1 << 14;

AB_CLONES void run(float* to, const Bf16* from, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = float(from[i]);
}

AB_CLONES void run(Bf16* to, const float* from, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = Bf16(from[i]);
}

template <class To, class From>
void run(To* to, const From* from, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    to[i] = To(static_cast<Accumulator<To>>(static_cast<Accumulator<From>>(from[i])));
  }
}

void check(const Tensor& to, const Tensor& from) {
  AB_CHECK(to.count() == from.count(), "[convert] to is ", to.shape(), " but from ", from.shape());
}

}  // namespace

void convert(Tensor& to, const Tensor& from) {
  check(to, from);
  if (to.device().is_cuda()) {
    if constexpr (build::kCuda) return cuda::convert(to, from);
  }
  dispatch(to.dtype(), [&]<class To>() {
    dispatch(from.dtype(), [&]<class From>() {
      To* y = to.data<To>();
      const From* x = from.data<From>();
      parallel_for(to.count(), kGrain,
                   [=](int64_t begin, int64_t end) { run(y + begin, x + begin, end - begin); });
    });
  });
}

void add_converted(Tensor& to, const Tensor& from, double scale) {
  check(to, from);
  if (to.device().is_cuda()) {
    if constexpr (build::kCuda) return cuda::add_converted(to, from, scale);
  }
  dispatch(to.dtype(), [&]<class To>() {
    dispatch(from.dtype(), [&]<class From>() {
      using A = Accumulator<To>;
      To* y = to.data<To>();
      const From* x = from.data<From>();
      parallel_for(to.count(), kGrain, [=](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          y[i] = To(A(y[i]) + A(scale) * static_cast<A>(static_cast<Accumulator<From>>(x[i])));
        }
      });
    });
  });
}

Tensor converted(const Tensor& from, DType type, const char* tag) {
  if (from.dtype() == type) return from;
  Tensor to = from.like(from.shape(), type, tag);
  convert(to, from);
  return to;
}

}  // namespace anabranch
