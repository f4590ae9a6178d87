#include <vector>

#include "core/base/parallel_for.h"
#include "core/ops/mix_streams.h"
#include "core/ops/vec_math.h"

namespace anabranch::cpu {
namespace {

constexpr int64_t kGrain = 16;  // rows

// q of one row.
template <class A>
void weights_of_row(A* q, const A* a, int64_t streams, A smoothing) {
  for (int64_t p = 0; p < streams; ++p) {
    const A uniform = A(1) / static_cast<A>(streams);
    q[p] = a != nullptr ? (A(1) - smoothing) * a[p] + smoothing * uniform : uniform;
  }
}

template <class A>
const A* data_of(const Tensor& t) {
  return t.empty() ? nullptr : t.data<A>();
}

}  // namespace

void mix_streams_forward(Tensor& y, const Tensor& h, const Tensor& a, double smoothing) {
  const int64_t C = y.dim(1), P = h.dim(1) / C;
  dispatch(h.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    T* to = y.data<T>();
    const T* from = h.data<T>();
    const A* weights = data_of<A>(a);
    parallel_for(y.dim(0), kGrain, [=](int64_t begin, int64_t end) {
      std::vector<A> q(static_cast<size_t>(P)), sums(static_cast<size_t>(C));
      for (int64_t n = begin; n < end; ++n) {
        weights_of_row(q.data(), weights != nullptr ? weights + n * P : nullptr, P,
                       static_cast<A>(smoothing));
        std::fill(sums.begin(), sums.end(), A(0));
        A* sum = sums.data();
        for (int64_t p = 0; p < P; ++p) {
          const T* row = from + (n * P + p) * C;
          const A weight = q[static_cast<size_t>(p)];
          for (int64_t c = 0; c < C; ++c) sum[c] += weight * A(row[c]);
        }
        for (int64_t c = 0; c < C; ++c) to[n * C + c] = T(sum[c]);
      }
    });
  });
}

void mix_streams_backward(Tensor& dh, Tensor& da, const Tensor& dy, const Tensor& h,
                          const Tensor& a, double smoothing) {
  const int64_t C = dy.dim(1), P = h.dim(1) / C;
  dispatch(h.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    T* to = dh.data<T>();
    A* to_a = da.empty() ? nullptr : da.data<A>();
    const T *d = dy.data<T>(), *from = h.data<T>();
    const A* weights = data_of<A>(a);
    parallel_for(dy.dim(0), kGrain, [=](int64_t begin, int64_t end) {
      std::vector<A> q(static_cast<size_t>(P));
      for (int64_t n = begin; n < end; ++n) {
        weights_of_row(q.data(), weights != nullptr ? weights + n * P : nullptr, P,
                       static_cast<A>(smoothing));
        const T* gradient = d + n * C;
        for (int64_t p = 0; p < P; ++p) {
          const T* row = from + (n * P + p) * C;
          T* out = to + (n * P + p) * C;
          const A weight = q[static_cast<size_t>(p)];
          for (int64_t c = 0; c < C; ++c) out[c] = T(weight * A(gradient[c]));
          if (to_a == nullptr) continue;
          const A dot = lane_sum<A>(C, [=](int64_t c) { return A(gradient[c]) * A(row[c]); });
          to_a[n * P + p] = static_cast<A>(1 - smoothing) * dot;
        }
      }
    });
  });
}

}  // namespace anabranch::cpu
