#include <algorithm>
#include <cmath>

#include "core/base/build.h"
#include "core/base/parallel_for.h"
#include "core/ops/qk_norm.h"
#include "core/ops/vec_math.h"

namespace anabranch::cpu {
namespace {

// The heads of one row.
template <class T>
struct Row {
  T* out;
  const T *in, *y;  // y: backward alone
  Accumulator<T>* r;
  int64_t heads, width;  // queries and keys together; D
  Accumulator<T> eps;
};

template <class T>
[[gnu::always_inline]] inline void normalise(Row<T> k) {
  using A = Accumulator<T>;
  for (int64_t head = 0; head < k.heads; ++head) {
    const T* x = k.in + head * k.width;
    T* y = k.out + head * k.width;
    const A squares = lane_sum<A>(
        k.width, [x](int64_t i) __attribute__((always_inline)) { return A(x[i]) * A(x[i]); });
    const A r = A(1) / std::sqrt(squares / static_cast<A>(k.width) + k.eps);
    k.r[head] = r;
#pragma GCC ivdep
    for (int64_t i = 0; i < k.width; ++i) y[i] = T(A(x[i]) * r);
  }
}

template <class T>
[[gnu::always_inline]] inline void differentiate(Row<T> k) {
  using A = Accumulator<T>;
  for (int64_t head = 0; head < k.heads; ++head) {
    const T *dy = k.in + head * k.width, *y = k.y + head * k.width;
    T* dx = k.out + head * k.width;
    const A mean = lane_sum<A>(
                       k.width, [ dy, y ](int64_t i)
                                    __attribute__((always_inline)) { return A(dy[i]) * A(y[i]); }) /
                   static_cast<A>(k.width);
    const A r = k.r[head];
#pragma GCC ivdep
    for (int64_t i = 0; i < k.width; ++i) dx[i] = T(r * (A(dy[i]) - A(y[i]) * mean));
  }
}

AB_CLONES void forward_row(Row<float> k) { normalise(k); }

AB_CLONES void forward_row(Row<Bf16> k) { normalise(k); }

void forward_row(Row<double> k) { normalise(k); }

AB_CLONES void backward_row(Row<float> k) { differentiate(k); }

AB_CLONES void backward_row(Row<Bf16> k) { differentiate(k); }

void backward_row(Row<double> k) { differentiate(k); }

int64_t grain_of(int64_t width) {
  return std::max<int64_t>(1, (1 << 13) / std::max<int64_t>(width, 1));
}

}  // namespace

void qk_norm_forward(Tensor& y, Tensor& r, const Tensor& qkv, double eps) {
  const int64_t width = qkv.dim(1), heads = r.dim(1), normed = width / 3 * 2;
  dispatch(qkv.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    T* to = y.data<T>();
    const T* from = qkv.data<T>();
    A* scale = r.data<A>();
    parallel_for(qkv.dim(0), grain_of(width), [=](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) {
        const T* row = from + n * width;
        forward_row(Row<T>{to + n * width, row, nullptr, scale + n * heads, heads, normed / heads,
                           static_cast<A>(eps)});
        std::copy(row + normed, row + width, to + n * width + normed);
      }
    });
  });
}

void qk_norm_backward(Tensor& dx, const Tensor& dy, const Tensor& y, const Tensor& r) {
  const int64_t width = y.dim(1), heads = r.dim(1), normed = width / 3 * 2;
  dispatch(y.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    T* to = dx.data<T>();
    const T *from = dy.data<T>(), *out = y.data<T>();
    A* scale = const_cast<A*>(r.data<A>());
    parallel_for(y.dim(0), grain_of(width), [=](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) {
        const T* row = from + n * width;
        backward_row(Row<T>{to + n * width, row, out + n * width, scale + n * heads, heads,
                            normed / heads, A(0)});
        if (to != from) std::copy(row + normed, row + width, to + n * width + normed);
      }
    });
  });
}

}  // namespace anabranch::cpu
