#include <algorithm>
#include <cmath>

#include "core/base/build.h"
#include "core/base/parallel_for.h"
#include "core/ops/adamw_factors.h"

namespace anabranch::cpu {
namespace {

constexpr int64_t kGrain = 1 << 14;

template <class A>
struct Range {
  A* __restrict p;
  A* __restrict m;
  A* __restrict v;
  const A* __restrict g;
  Bf16* __restrict value;
  int64_t n;
};

template <class A>
[[gnu::always_inline]] inline void update(const Range<A>& range, const AdamwFactors<A>& f) {
  A* __restrict p = range.p;
  A* __restrict m = range.m;
  A* __restrict v = range.v;
  const A* __restrict g = range.g;
  for (int64_t i = 0; i < range.n; ++i) {
    const A grad = g[i] * f.grad_scale;
    m[i] += (grad - m[i]) * f.new_m;
    v[i] = v[i] * f.beta2 + grad * grad * f.new_v;
    p[i] = p[i] * f.kept - f.rate * m[i] / (std::sqrt(v[i]) * f.root_correction + f.eps);
  }
  if (range.value == nullptr) return;
  Bf16* __restrict value = range.value;
  for (int64_t i = 0; i < range.n; ++i) value[i] = Bf16(static_cast<float>(p[i]));
}

AB_CLONES void run(const Range<float>& range, const AdamwFactors<float>& f) { update(range, f); }

AB_CLONES void run(const Range<double>& range, const AdamwFactors<double>& f) { update(range, f); }

template <class A>
void step_all(Tensor& master, Tensor& m, Tensor& v, const Tensor& grad, Tensor* value,
              const AdamwStep& step) {
  const AdamwFactors<A> f(step);
  A *p = master.data<A>(), *first = m.data<A>(), *second = v.data<A>();
  const A* g = grad.data<A>();
  Bf16* rounded = value != nullptr ? value->data<Bf16>() : nullptr;
  parallel_for(master.count(), kGrain, [&](int64_t begin, int64_t end) {
    constexpr int64_t kPiece = 4096;  // rounded while it is in the cache
    for (int64_t at = begin; at < end; at += kPiece) {
      run({p + at, first + at, second + at, g + at, rounded != nullptr ? rounded + at : nullptr,
           std::min(kPiece, end - at)},
          f);
    }
  });
}

}  // namespace

void adamw(Tensor& master, Tensor& m, Tensor& v, const Tensor& grad, Tensor* value,
           const AdamwStep& step) {
  if (master.dtype() == DType::kF64) {
    step_all<double>(master, m, v, grad, value, step);
  } else {
    step_all<float>(master, m, v, grad, value, step);
  }
}

}  // namespace anabranch::cpu
