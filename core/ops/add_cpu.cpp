#include "core/base/build.h"
#include "core/base/parallel_for.h"
#include "core/ops/add.h"

namespace anabranch::cpu {
namespace {

constexpr int64_t kGrain = 1 << 14;

template <class T>
[[gnu::always_inline]] inline void sum(T* z, const T* x, const T* y, int64_t n) {
  using A = Accumulator<T>;
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) z[i] = T(A(x[i]) + A(y[i]));
}

AB_CLONES void run(float* z, const float* x, const float* y, int64_t n) { sum(z, x, y, n); }

AB_CLONES void run(Bf16* z, const Bf16* x, const Bf16* y, int64_t n) { sum(z, x, y, n); }

AB_CLONES void run(double* z, const double* x, const double* y, int64_t n) { sum(z, x, y, n); }

}  // namespace

void add(Tensor& z, const Tensor& x, const Tensor& y) {
  dispatch(z.dtype(), [&]<class T>() {
    T* to = z.data<T>();
    const T *a = x.data<T>(), *b = y.data<T>();
    parallel_for(z.count(), kGrain, [=](int64_t begin, int64_t end) {
      run(to + begin, a + begin, b + begin, end - begin);
    });
  });
}

}  // namespace anabranch::cpu
