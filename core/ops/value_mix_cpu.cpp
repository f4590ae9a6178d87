#include <algorithm>

#include "core/base/build.h"
#include "core/base/parallel_for.h"
#include "core/ops/value_mix.h"
#include "core/ops/vec_math.h"

namespace anabranch::cpu {
namespace {

// The heads of one row.
template <class T>
struct Row {
  T* out;                   // v', or de
  const T *in, *e;          // v, or dv'
  Accumulator<T>* dlogits;  // backward alone
  const Accumulator<T>* logits;
  int64_t heads, width;
};

template <class T>
[[gnu::always_inline]] inline void mix(Row<T> k) {
  using A = Accumulator<T>;
  for (int64_t head = 0; head < k.heads; ++head) {
    const A gate = A(2) * sigmoid_fast(k.logits[head]);
    const int64_t at = head * k.width;
#pragma GCC ivdep
    for (int64_t i = at; i < at + k.width; ++i) k.out[i] = T(A(k.in[i]) + gate * A(k.e[i]));
  }
}

template <class T>
[[gnu::always_inline]] inline void differentiate(Row<T> k) {
  using A = Accumulator<T>;
  for (int64_t head = 0; head < k.heads; ++head) {
    const A gate = A(2) * sigmoid_fast(k.logits[head]);
    const T *dv = k.in + head * k.width, *e = k.e + head * k.width;
    T* de = k.out + head * k.width;
    const A dot = lane_sum<A>(
        k.width,
        [ dv, e ](int64_t i) __attribute__((always_inline)) { return A(dv[i]) * A(e[i]); });
    k.dlogits[head] = dot * gate * (A(1) - gate / A(2));
#pragma GCC ivdep
    for (int64_t i = 0; i < k.width; ++i) de[i] = T(gate * A(dv[i]));
  }
}

AB_CLONES void forward_row(Row<float> k) { mix(k); }

AB_CLONES void forward_row(Row<Bf16> k) { mix(k); }

void forward_row(Row<double> k) { mix(k); }

AB_CLONES void backward_row(Row<float> k) { differentiate(k); }

AB_CLONES void backward_row(Row<Bf16> k) { differentiate(k); }

void backward_row(Row<double> k) { differentiate(k); }

int64_t grain_of(int64_t width) {
  return std::max<int64_t>(1, (1 << 13) / std::max<int64_t>(width, 1));
}

}  // namespace

void value_mix_forward(Tensor& y, const Tensor& qkv, const Tensor& e, const Tensor& logits) {
  const int64_t C = e.dim(1), H = logits.dim(1);
  dispatch(qkv.dtype(), [&]<class T>() {
    T* to = y.data<T>();
    const T *from = qkv.data<T>(), *table = e.data<T>();
    const auto* l = logits.data<Accumulator<T>>();
    parallel_for(e.dim(0), grain_of(3 * C), [=](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) {
        const T* row = from + n * 3 * C;
        T* out = to + n * 3 * C;
        std::copy(row, row + 2 * C, out);
        forward_row(Row<T>{out + 2 * C, row + 2 * C, table + n * C, nullptr, l + n * H, H, C / H});
      }
    });
  });
}

void value_mix_backward(Tensor& de, Tensor& dlogits, const Tensor& dy, const Tensor& e,
                        const Tensor& logits) {
  const int64_t C = e.dim(1), H = logits.dim(1);
  dispatch(e.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    T* to = de.data<T>();
    const T *from = dy.data<T>(), *table = e.data<T>();
    A* dl = dlogits.data<A>();
    const A* l = logits.data<A>();
    parallel_for(e.dim(0), grain_of(3 * C), [=](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) {
        backward_row(Row<T>{to + n * C, from + n * 3 * C + 2 * C, table + n * C, dl + n * H,
                            l + n * H, H, C / H});
      }
    });
  });
}

}  // namespace anabranch::cpu
