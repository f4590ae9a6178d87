#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/base/build.h"
#include "core/base/parallel_for.h"
#include "core/ops/gemm.h"
#include "core/ops/linear_cross_entropy.h"
#include "core/ops/vec_math.h"

namespace anabranch::cpu {
namespace {

// Logits that exist at a time. Rows share the traffic of w and dw: at fewer than about 1,000 rows
// that traffic shows beside the products in bf16.
constexpr int64_t kChunkBytes = 200 << 20;
constexpr int64_t kMinRows = 64, kMaxRows = 1024;
constexpr int64_t kRowAlignment = 32;  // elements; the vectors of a product do not straddle lines

int64_t row_stride(int64_t V) { return (V + kRowAlignment - 1) / kRowAlignment * kRowAlignment; }

template <class A>
[[gnu::always_inline]] inline A largest(const A* x, int64_t n) {
  constexpr int64_t kLanes = 64;
  A lanes[kLanes];
  for (A& lane : lanes) lane = -std::numeric_limits<A>::infinity();
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t j = 0; j < kLanes; ++j) lanes[j] = x[i + j] > lanes[j] ? x[i + j] : lanes[j];
  }
  for (; i < n; ++i) lanes[0] = x[i] > lanes[0] ? x[i] : lanes[0];
  return *std::max_element(lanes, lanes + kLanes);
}

// x <- exp(x - largest), and the sum of that.
template <class A>
[[gnu::always_inline]] inline double exponentials(A* x, int64_t n, A top) {
  constexpr int64_t kPiece = 4096;  // summed in A, then in double
  double sum = 0;
  for (int64_t first = 0; first < n; first += kPiece) {
    A* piece = x + first;
    const int64_t count = std::min(kPiece, n - first);
#pragma GCC ivdep
    for (int64_t i = 0; i < count; ++i) piece[i] = exp_fast(piece[i] - top);
    sum += static_cast<double>(lane_sum<A>(
        count, [piece](int64_t i) __attribute__((always_inline)) { return piece[i]; }));
  }
  return sum;
}

template <class A>
[[gnu::always_inline]] inline double softmax_loss(A* x, int64_t n, int64_t target, double& sum) {
  const A top = largest(x, n), at_target = x[target];
  sum = exponentials(x, n, top);
  return std::log(sum) + static_cast<double>(top - at_target);
}

AB_CLONES double row_loss(float* x, int64_t n, int64_t target, double& sum) {
  return softmax_loss(x, n, target, sum);
}

AB_CLONES double row_loss(double* x, int64_t n, int64_t target, double& sum) {
  return softmax_loss(x, n, target, sum);
}

AB_CLONES void multiply(float* x, int64_t n, float factor) {
  for (int64_t i = 0; i < n; ++i) x[i] *= factor;
}

void multiply(double* x, int64_t n, double factor) {
  for (int64_t i = 0; i < n; ++i) x[i] *= factor;
}

// t <- tanh(x / cap), x <- cap t. A non-finite x, which tanh would hide, becomes NaN.
template <class A>
[[gnu::always_inline]] inline void capped(A* __restrict x, A* __restrict t, int64_t n, A cap) {
  const A inverse = A(1) / cap;
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    t[i] = tanh_fast(x[i] * inverse);
    x[i] = cap * t[i] + (x[i] - x[i]);  // NaN for infinity. NOLINT(misc-redundant-expression)
  }
}

AB_CLONES void cap_row(float* x, float* t, int64_t n, float cap) { capped(x, t, n, cap); }

AB_CLONES void cap_row(double* x, double* t, int64_t n, double cap) { capped(x, t, n, cap); }

// dx <- dx (1 - t^2)
AB_CLONES void cap_gradient(float* dx, const float* t, int64_t n) {
  for (int64_t i = 0; i < n; ++i) dx[i] *= 1.0F - t[i] * t[i];
}

void cap_gradient(double* dx, const double* t, int64_t n) {
  for (int64_t i = 0; i < n; ++i) dx[i] *= 1.0 - t[i] * t[i];
}

// Rounds a row of floats to bf16 over its own first half.
AB_CLONES void round_in_place(float* x, int64_t n) {
  constexpr int64_t kPiece = 1024;
  Bf16 rounded[kPiece];
  auto* to = reinterpret_cast<std::byte*>(x);
  for (int64_t first = 0; first < n; first += kPiece) {
    const int64_t count = std::min(kPiece, n - first);
    for (int64_t i = 0; i < count; ++i) rounded[i] = Bf16(x[first + i]);
    std::memcpy(to + first * static_cast<int64_t>(sizeof(Bf16)), rounded,
                static_cast<size_t>(count) * sizeof(Bf16));
  }
}

template <class A>
struct Softcap {
  A cap;  // 0 for none
  A* t;   // [V], for tanh(l / cap)
};

// One row of logits: its loss, and with gradients those of the logits in its place.
template <class T, class A>
double finish_row(A* x, int64_t V, int64_t target, const CrossEntropyGradients* gradients,
                  Softcap<A> softcap) {
  double loss = 0, sum = 0;
  if (target >= 0 && softcap.cap > 0) cap_row(x, softcap.t, V, softcap.cap);
  if (target >= 0) loss = row_loss(x, V, target, sum);
  if (gradients == nullptr) return loss;
  if (target >= 0) {
    multiply(x, V, static_cast<A>(gradients->scale / sum));
    x[target] -= static_cast<A>(gradients->scale);
    if (softcap.cap > 0) cap_gradient(x, softcap.t, V);
  } else {
    std::fill(x, x + V, A(0));
  }
  if constexpr (std::is_same_v<T, Bf16>) round_in_place(x, V);
  return loss;
}

template <class T>
void run(std::span<double> losses, const Tensor& x, const Tensor& w, const int32_t* target,
         double softcap, const CrossEntropyGradients* gradients) {
  using A = Accumulator<T>;
  constexpr int64_t kWidening = size_of(kDTypeOf<A>) / size_of(kDTypeOf<T>);
  const int64_t N = std::ssize(losses), C = w.dim(1), V = w.dim(0);
  const int64_t stride = row_stride(V);
  if (N == 0 && gradients != nullptr && !gradients->dw->accumulate) gradients->dw->out.fill_zero();
  const int64_t chunk = cross_entropy_rows(N, V, kDTypeOf<A>);
  Tensor logits = x.like({chunk, stride}, kDTypeOf<A>, "logits");
  A* l = logits.data<A>();
  for (int64_t first = 0; first < N; first += chunk) {
    const int64_t rows = std::min(chunk, N - first);
    const T* hidden = x.data<T>() + first * C;
    gemm<T, A>(l, hidden, w.data<T>(),
               {.m = rows, .n = V, .k = C, .transpose_b = true, .ldc = stride});
    parallel_for(rows, 1, [=, &x](int64_t begin, int64_t end) {
      Softcap<A> cap{A(softcap), nullptr};
      Tensor tanhs;
      if (softcap > 0) {
        tanhs = x.like({V}, kDTypeOf<A>, "softcap");
        cap.t = tanhs.data<A>();
      }
      for (int64_t r = begin; r < end; ++r) {
        losses[static_cast<size_t>(first + r)] =
            finish_row<T>(l + r * stride, V, target[first + r], gradients, cap);
      }
    });
    if (gradients == nullptr) continue;
    const T* dl = reinterpret_cast<const T*>(l);
    const int64_t dl_stride = stride * kWidening;
    if (gradients->dx != nullptr) {
      gemm<T, T>(gradients->dx->data<T>() + first * C, dl, w.data<T>(),
                 {.m = rows, .n = C, .k = V, .lda = dl_stride}, {.pool = x.pool()});
    }
    GradSink& dw = *gradients->dw;
    gemm<T, A>(dw.out.data<A>(), dl, hidden,
               {.m = V,
                .n = C,
                .k = rows,
                .transpose_a = true,
                .accumulate = dw.accumulate || first > 0,
                .lda = dl_stride});
  }
}

}  // namespace

int64_t cross_entropy_rows(int64_t rows, int64_t vocabulary, DType sums) {
  const int64_t row_bytes = row_stride(vocabulary) * static_cast<int64_t>(size_of(sums));
  return std::min(rows, std::clamp(kChunkBytes / row_bytes, kMinRows, kMaxRows));
}

void linear_cross_entropy(std::span<double> losses, const Tensor& x, const Tensor& w,
                          const Tensor& targets, double softcap,
                          const CrossEntropyGradients* gradients) {
  dispatch(x.dtype(),
           [&]<class T>() { run<T>(losses, x, w, targets.data<int32_t>(), softcap, gradients); });
}

void cap_logits(Tensor& logits, double softcap) {
  dispatch(logits.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    constexpr int64_t kPiece = 1024;
    T* at = logits.data<T>();
    parallel_for(logits.count(), kPiece, [=](int64_t begin, int64_t end) {
      A l[kPiece], t[kPiece];
      for (int64_t first = begin; first < end; first += kPiece) {
        const int64_t n = std::min(kPiece, end - first);
        for (int64_t i = 0; i < n; ++i) l[i] = static_cast<A>(at[first + i]);
        cap_row(l, t, n, A(softcap));
        for (int64_t i = 0; i < n; ++i) at[first + i] = T(l[i]);
      }
    });
  });
}

}  // namespace anabranch::cpu
