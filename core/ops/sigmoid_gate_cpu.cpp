#include "core/base/build.h"
#include "core/base/parallel_for.h"
#include "core/ops/sigmoid_gate.h"
#include "core/ops/vec_math.h"

namespace anabranch::cpu {
namespace {

constexpr int64_t kGrain = 1 << 12;

template <class T>
struct Forward {
  T* y;
  const T *a, *b;
  int64_t n;
};

template <class T>
struct Backward {
  T *da, *db;  // null if unwanted
  const T *dy, *a, *b;
  int64_t n;
};

template <class T>
[[gnu::always_inline]] inline void forward(Forward<T> k) {
  using A = Accumulator<T>;
#pragma GCC ivdep
  for (int64_t i = 0; i < k.n; ++i) k.y[i] = T(A(k.a[i]) * sigmoid_fast(A(k.b[i])));
}

template <class T>
[[gnu::always_inline]] inline void backward(Backward<T> k) {
  using A = Accumulator<T>;
  if (k.da != nullptr) {
#pragma GCC ivdep
    for (int64_t i = 0; i < k.n; ++i) k.da[i] = T(A(k.dy[i]) * sigmoid_fast(A(k.b[i])));
  }
  if (k.db == nullptr) return;
#pragma GCC ivdep
  for (int64_t i = 0; i < k.n; ++i) {
    const A s = sigmoid_fast(A(k.b[i]));
    k.db[i] = T(A(k.dy[i]) * A(k.a[i]) * s * (A(1) - s));
  }
}

AB_CLONES void run(Forward<float> k) { forward(k); }

AB_CLONES void run(Forward<Bf16> k) { forward(k); }

void run(Forward<double> k) { forward(k); }

AB_CLONES void run(Backward<float> k) { backward(k); }

AB_CLONES void run(Backward<Bf16> k) { backward(k); }

void run(Backward<double> k) { backward(k); }

}  // namespace

void sigmoid_gate_forward(Tensor& y, const Tensor& a, const Tensor& b) {
  dispatch(y.dtype(), [&]<class T>() {
    T* to = y.data<T>();
    const T *x = a.data<T>(), *gate = b.data<T>();
    parallel_for(y.count(), kGrain, [=](int64_t begin, int64_t end) {
      run(Forward<T>{to + begin, x + begin, gate + begin, end - begin});
    });
  });
}

void sigmoid_gate_backward(Tensor& da, Tensor& db, const Tensor& dy, const Tensor& a,
                           const Tensor& b) {
  dispatch(dy.dtype(), [&]<class T>() {
    const T *d = dy.data<T>(), *x = a.data<T>(), *gate = b.data<T>();
    T* to_a = da.empty() ? nullptr : da.data<T>();
    T* to_b = db.empty() ? nullptr : db.data<T>();
    parallel_for(dy.count(), kGrain, [=](int64_t begin, int64_t end) {
      run(Backward<T>{to_a != nullptr ? to_a + begin : nullptr,
                      to_b != nullptr ? to_b + begin : nullptr, d + begin, x + begin, gate + begin,
                      end - begin});
    });
  });
}

}  // namespace anabranch::cpu
