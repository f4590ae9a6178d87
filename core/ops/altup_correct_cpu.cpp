#include "core/base/build.h"
#include "core/base/parallel_for.h"
#include "core/ops/altup_correct.h"

namespace anabranch::cpu {
namespace {

template <class T>
struct Terms {
  T* out;
  const T *x, *y;
  Accumulator<T> factor;
  int64_t n;
};

template <class T>
[[gnu::always_inline]] inline void add_terms(Terms<T> k) {
  using A = Accumulator<T>;
#pragma GCC ivdep
  for (int64_t i = 0; i < k.n; ++i) k.out[i] = T(A(k.x[i]) + k.factor * A(k.y[i]));
}

AB_CLONES void run(Terms<float> k) { add_terms(k); }

AB_CLONES void run(Terms<Bf16> k) { add_terms(k); }

void run(Terms<double> k) { add_terms(k); }

}  // namespace

void add_scaled(Tensor& out, const Tensor& x, double factor, const Tensor& y) {
  dispatch(out.dtype(), [&]<class T>() {
    T* to = out.data<T>();
    const T *a = x.data<T>(), *b = y.data<T>();
    const auto by = static_cast<Accumulator<T>>(factor);
    constexpr int64_t kGrain = 1 << 13;
    parallel_for(out.count(), kGrain, [=](int64_t begin, int64_t end) {
      run(Terms<T>{to + begin, a + begin, b + begin, by, end - begin});
    });
  });
}

}  // namespace anabranch::cpu
