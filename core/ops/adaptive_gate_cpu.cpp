#include <algorithm>
#include <vector>

#include "core/base/build.h"
#include "core/base/parallel_for.h"
#include "core/ops/adaptive_gate.h"
#include "core/ops/vec_math.h"

namespace anabranch::cpu {
namespace {

template <class A>
struct Scales {
  A sens, bias, mag;

  explicit Scales(const A* r)
      : sens(A(2) * sigmoid_fast(r[0])), bias(tanh_fast(r[1])), mag(A(2) * sigmoid_fast(r[2])) {}
};

template <class T>
[[gnu::always_inline]] inline void forward_row(T* y, const T* f, const T* v,
                                               const Accumulator<T>* r, int64_t n) {
  using A = Accumulator<T>;
  const Scales<A> s(r);
#pragma GCC ivdep
  for (int64_t c = 0; c < n; ++c) {
    y[c] = T(A(f[c]) * s.mag * sigmoid_fast(s.sens * A(v[c]) + s.bias));
  }
}

AB_CLONES void run(float* y, const float* f, const float* v, const float* r, int64_t n) {
  forward_row(y, f, v, r, n);
}

AB_CLONES void run(Bf16* y, const Bf16* f, const Bf16* v, const float* r, int64_t n) {
  forward_row(y, f, v, r, n);
}

void run(double* y, const double* f, const double* v, const double* r, int64_t n) {
  forward_row(y, f, v, r, n);
}

// One row of the backward: q and e of the equations go to `work` [2 C].
template <class T>
struct Row {
  using A = Accumulator<T>;
  const T *dy, *f, *v;
  const A* r;
  A* work;
  T *df, *dv;  // null if unwanted
  A* dr;       // null if unwanted
  int64_t n;
};

template <class T>
[[gnu::always_inline]] inline void backward_row(const Row<T>& k) {
  using A = Accumulator<T>;
  const Scales<A> s(k.r);
  A *q = k.work, *e = k.work + k.n;
  const T *dy = k.dy, *f = k.f, *v = k.v;
#pragma GCC ivdep
  for (int64_t c = 0; c < k.n; ++c) {
    q[c] = sigmoid_fast(s.sens * A(v[c]) + s.bias);
    e[c] = A(dy[c]) * A(f[c]) * s.mag * q[c] * (A(1) - q[c]);
  }
  if (k.df != nullptr) {
#pragma GCC ivdep
    for (int64_t c = 0; c < k.n; ++c) k.df[c] = T(A(dy[c]) * s.mag * q[c]);
  }
  if (k.dv != nullptr) {
#pragma GCC ivdep
    for (int64_t c = 0; c < k.n; ++c) k.dv[c] = T(e[c] * s.sens);
  }
  if (k.dr == nullptr) return;
  const A dsens = lane_sum<A>(k.n, [=](int64_t c) { return e[c] * A(v[c]); });
  const A dbias = lane_sum<A>(k.n, [=](int64_t c) { return e[c]; });
  const A dmag = lane_sum<A>(k.n, [=](int64_t c) { return A(dy[c]) * A(f[c]) * q[c]; });
  k.dr[0] = dsens * s.sens * (A(1) - s.sens / A(2));
  k.dr[1] = dbias * (A(1) - s.bias * s.bias);
  k.dr[2] = dmag * s.mag * (A(1) - s.mag / A(2));
}

AB_CLONES void run(const Row<float>& k) { backward_row(k); }

AB_CLONES void run(const Row<Bf16>& k) { backward_row(k); }

void run(const Row<double>& k) { backward_row(k); }

int64_t grain(int64_t width) {
  return std::max<int64_t>(1, (1 << 12) / std::max<int64_t>(width, 1));
}

template <class T>
T* rows_of(Tensor& t) {
  return t.empty() ? nullptr : t.data<T>();
}

template <class T>
T* row_at(T* rows, int64_t offset) {
  return rows != nullptr ? rows + offset : nullptr;
}

}  // namespace

void adaptive_gate_forward(Tensor& y, const Tensor& f, const Tensor& v, const Tensor& r) {
  const int64_t n = f.dim(1);
  dispatch(f.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    T* to = y.data<T>();
    const T *x = f.data<T>(), *gate = v.data<T>();
    const A* scales = r.data<A>();
    parallel_for(f.dim(0), grain(n), [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        run(to + i * n, x + i * n, gate + i * n, scales + 3 * i, n);
      }
    });
  });
}

void adaptive_gate_backward(AdaptiveGradients& to, const Tensor& dy, const Tensor& f,
                            const Tensor& v, const Tensor& r) {
  const int64_t n = f.dim(1);
  dispatch(f.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    const T *d = dy.data<T>(), *x = f.data<T>(), *gate = v.data<T>();
    const A* scales = r.data<A>();
    T *df = rows_of<T>(to.df), *dv = rows_of<T>(to.dv);
    A* dr = rows_of<A>(to.dr);
    parallel_for(f.dim(0), grain(n), [=](int64_t begin, int64_t end) {
      std::vector<A> work(static_cast<size_t>(2 * n));
      for (int64_t i = begin; i < end; ++i) {
        run(Row<T>{d + i * n, x + i * n, gate + i * n, scales + 3 * i, work.data(),
                   row_at(df, i * n), row_at(dv, i * n), row_at(dr, 3 * i), n});
      }
    });
  });
}

}  // namespace anabranch::cpu
