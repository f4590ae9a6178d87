#include "core/base/parallel_for.h"
#include "core/ops/softmax.h"
#include "core/ops/softmax_row.h"

namespace anabranch::cpu {
namespace {

constexpr int64_t kGrain = 256;  // rows

}  // namespace

void softmax_forward(Tensor& p, const Tensor& logits) {
  const int64_t K = p.dim(-1), rows = K == 0 ? 0 : p.count() / K;
  dispatch(p.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    A* to = p.data<A>();
    const A* from = logits.data<A>();
    parallel_for(rows, kGrain, [=](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) softmax_row(to + row * K, from + row * K, K);
    });
  });
}

void softmax_backward(GradSink& dlogits, const Tensor& dp, const Tensor& p) {
  const int64_t K = p.dim(-1), rows = K == 0 ? 0 : p.count() / K;
  const bool add = dlogits.accumulate;
  dispatch(p.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    T* to = dlogits.out.data<T>();
    const T *d = dp.data<T>(), *y = p.data<T>();
    parallel_for(rows, kGrain, [=](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const int64_t at = row * K;
        A dot = 0;
        for (int64_t k = 0; k < K; ++k) dot += A(d[at + k]) * A(y[at + k]);
        for (int64_t k = 0; k < K; ++k) {
          const A g = A(y[at + k]) * (A(d[at + k]) - dot);
          to[at + k] = T(add ? A(to[at + k]) + g : g);
        }
      }
    });
  });
}

}  // namespace anabranch::cpu
