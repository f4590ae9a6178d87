#include "core/base/build.h"
#include "core/base/parallel_for.h"
#include "core/ops/altup_correct.h"
#include "core/ops/scalar_mix.h"
#include "core/tensor/element.h"

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

// out = x + factor y
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

}  // namespace

void altup_correct_forward(AltupForward& op) {
  add_scaled(op.difference, op.computed, -1, op.predicted[static_cast<size_t>(op.active)]);
  for (size_t i = 0; i < op.predicted.size(); ++i) {
    const double g = element(op.g, static_cast<int64_t>(i));
    add_scaled(op.corrected[i], op.predicted[i], g, op.difference);
  }
}

void altup_correct_backward(AltupBackward& op) {
  std::vector<Tensor> dys(op.dys.begin(), op.dys.end());
  for (size_t i = 0; i < dys.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    const double kept = op.dg.accumulate ? element(op.dg.out, at) : 0;
    set_element(op.dg.out, kept + (dys[i].empty() ? 0 : dot(dys[i], op.difference)), at);
    if (!dys[i].empty()) continue;
    dys[i] = op.difference.like("gradient");
    dys[i].fill_zero();
  }
  weighted_sum(op.dxt, dys, op.g, 0, 1);
  add_scaled(op.dxa, dys[static_cast<size_t>(op.active)], -1, op.dxt);
}

}  // namespace anabranch::cpu
