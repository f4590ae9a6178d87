#include "core/base/parallel_for.h"
#include "core/ops/repeat_streams.h"

namespace anabranch::cpu {

void repeat_streams(Tensor& y, const Tensor& x) {
  for (int64_t at = 0; at < y.count(); at += x.count()) y.view(at, x.shape()).copy_from(x);
}

void sum_streams(Tensor& dx, const Tensor& dy) {
  const int64_t count = dx.count(), streams = dy.count() / std::max<int64_t>(count, 1);
  dispatch(dx.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    T* to = dx.data<T>();
    const T* from = dy.data<T>();
    constexpr int64_t kGrain = 1 << 12;
    parallel_for(count, kGrain, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        A sum = A(from[i]);
        for (int64_t p = 1; p < streams; ++p) sum += A(from[p * count + i]);
        to[i] = T(sum);
      }
    });
  });
}

}  // namespace anabranch::cpu
