#include "core/ops/matrix_batch.h"

#include <algorithm>
#include <vector>

#include "core/base/build.h"
#include "core/base/parallel_for.h"
#include "core/ops/row_blocks.h"
#include "core/ops/vec_math.h"

namespace anabranch {

MatrixBatch matrix_batch(const char* op, const Tensor& t) {
  const Shape& shape = t.shape();
  AB_CHECK((shape.rank() == 2 || shape.rank() == 3) && t.count() > 0, "[", op,
           "] needs matrices [rows, cols] or [S, rows, cols] but got ", shape);
  return {shape.rank() == 3 ? shape[0] : 1, shape[-2], shape[-1]};
}

void check_matrix_state(const char* op, const MatrixState& state, DType compute) {
  const Tensor& master = state.master;
  const auto check = [&](const Tensor& t, DType type, const char* name) {
    AB_CHECK(t.shape() == master.shape() && t.dtype() == type, "[", op, "] ", name, " is ",
             name_of(t.dtype()), t.shape(), " but needs ", name_of(type), master.shape());
  };
  check(master, accumulator_of(master.dtype()), "master");
  check(state.m, master.dtype(), "m");
  check(state.grad, master.dtype(), "grad");
  if (state.value != nullptr) check(*state.value, DType::kBF16, "value");
  AB_CHECK(accumulator_of(compute) == master.dtype(), "[", op, "] cannot compute in ",
           name_of(compute), " beside ", name_of(master.dtype()));
}

namespace cpu {
namespace {

// Elements up to which a matrix is left to one thread: products of that size are as fast per
// thread as larger ones, but split between threads they are not.
constexpr int64_t kOneThread = 1 << 18;
constexpr int64_t kGrain = 1 << 14;
constexpr int64_t kRowGrain = 16;

template <class A>
struct Factors {
  A new_m, momentum, grad_scale, rate, decay;  // new_m: 1 - momentum
  bool nesterov, cautious;
};

template <class A>
Factors<A> factors_of(const MatrixStep& s) {
  return {A(1 - s.momentum), A(s.momentum), A(s.grad_scale), A(s.rate),
          A(s.decay),        s.nesterov,    s.cautious};
}

template <class A>
[[gnu::always_inline]] inline A new_momentum(A m, A g, const Factors<A>& f) {
  return m + (g * f.grad_scale - m) * f.new_m;
}

template <class A>
[[gnu::always_inline]] inline void direct(A* __restrict v, const A* m, const A* g, int64_t n,
                                          const Factors<A>& f) {
  if (f.nesterov) {
    for (int64_t i = 0; i < n; ++i) {
      const A grad = g[i] * f.grad_scale;
      v[i] = grad + f.momentum * (new_momentum(m[i], g[i], f) - grad);
    }
  } else {
    for (int64_t i = 0; i < n; ++i) v[i] = new_momentum(m[i], g[i], f);
  }
}

template <class A>
struct Range {
  A *w, *m;
  const A *g, *u;
  Bf16* value;
  int64_t n;
};

template <class A>
[[gnu::always_inline]] inline void update(const Range<A>& range, const Factors<A>& f) {
  A* __restrict w = range.w;
  A* __restrict m = range.m;
  const A* __restrict g = range.g;
  const A* __restrict u = range.u;
  for (int64_t i = 0; i < range.n; ++i) {
    m[i] = new_momentum(m[i], g[i], f);
    const A decay = f.cautious && !(u[i] * w[i] >= A(0)) ? A(0) : f.decay;
    w[i] -= f.rate * u[i] + decay * w[i];
  }
  if (range.value == nullptr) return;
  Bf16* __restrict value = range.value;
  for (int64_t i = 0; i < range.n; ++i) value[i] = Bf16(static_cast<float>(w[i]));
}

template <class A>
[[gnu::always_inline]] inline void add_squares(double* __restrict sums, const A* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const auto value = static_cast<double>(x[i]);
    sums[i] += value * value;
  }
}

template <class A>
[[gnu::always_inline]] inline double squares(const A* x, int64_t n) {
  return lane_sum<double>(
      n, [x](int64_t i) __attribute__((always_inline)) {
        return static_cast<double>(x[i]) * static_cast<double>(x[i]);
      });
}

AB_CLONES void direct_range(float* v, const float* m, const float* g, int64_t n,
                            const Factors<float>& f) {
  direct(v, m, g, n, f);
}

AB_CLONES void direct_range(double* v, const double* m, const double* g, int64_t n,
                            const Factors<double>& f) {
  direct(v, m, g, n, f);
}

AB_CLONES void update_range(const Range<float>& range, const Factors<float>& f) {
  update(range, f);
}

AB_CLONES void update_range(const Range<double>& range, const Factors<double>& f) {
  update(range, f);
}

AB_CLONES void add_row_squares(double* sums, const float* x, int64_t n) { add_squares(sums, x, n); }

AB_CLONES void add_row_squares(double* sums, const double* x, int64_t n) {
  add_squares(sums, x, n);
}

AB_CLONES double row_squares(const float* x, int64_t n) { return squares(x, n); }

AB_CLONES double row_squares(const double* x, int64_t n) { return squares(x, n); }

template <class A>
void column_squares(std::span<double> sums, const Tensor& x) {
  const int64_t rows = x.dim(0), cols = x.dim(1);
  const A* from = x.data<A>();
  const RowBlocks blocks(rows);
  Tensor partials = x.like({blocks.count, cols}, DType::kF64, "axis_squares");
  partials.fill_zero();
  auto* partial = partials.data<double>();
  parallel_for(blocks.count, 1, [=](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      for (int64_t r = blocks.begin(b); r < blocks.end(b); ++r) {
        add_row_squares(partial + b * cols, from + r * cols, cols);
      }
    }
  });
  std::fill(sums.begin(), sums.end(), 0.0);
  for (int64_t b = 0; b < blocks.count; ++b) {
    for (int64_t c = 0; c < cols; ++c) sums[static_cast<size_t>(c)] += partial[b * cols + c];
  }
}

// Runs `f` with float or double.
template <class F>
void dispatch_accumulator(const Tensor& t, const F& f) {
  if (t.dtype() == DType::kF64) {
    f.template operator()<double>();
  } else {
    f.template operator()<float>();
  }
}

}  // namespace

void each_matrix(const MatrixBatch& batch, const std::function<void(int64_t)>& body) {
  const int64_t threads = thread_count();
  int64_t alone = batch.count;
  if (batch.rows * batch.cols > kOneThread) alone -= alone % threads;
  parallel_for(alone, 1, [&](int64_t begin, int64_t end) {
    const OneThread one;
    for (int64_t i = begin; i < end; ++i) body(i);
  });
  for (int64_t i = alone; i < batch.count; ++i) body(i);
}

void momentum_direction(Tensor& v, const Tensor& m, const Tensor& grad, const MatrixStep& step) {
  dispatch_accumulator(v, [&]<class A>() {
    const Factors<A> f = factors_of<A>(step);
    A* to = v.data<A>();
    const A *first = m.data<A>(), *g = grad.data<A>();
    parallel_for(v.count(), kGrain, [&](int64_t begin, int64_t end) {
      direct_range(to + begin, first + begin, g + begin, end - begin, f);
    });
  });
}

void axis_squares(std::span<double> squares, const Tensor& x, bool of_rows) {
  dispatch_accumulator(x, [&]<class A>() {
    if (!of_rows) return column_squares<A>(squares, x);
    const int64_t cols = x.dim(1);
    const A* from = x.data<A>();
    parallel_for(x.dim(0), kRowGrain, [=](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        squares[static_cast<size_t>(r)] = row_squares(from + r * cols, cols);
      }
    });
  });
}

void scale_axis(Tensor& to, const Tensor& from, std::span<const double> factors, bool of_rows) {
  dispatch_accumulator(from, [&]<class A>() {
    const int64_t cols = from.dim(1);
    const std::vector<A> rounded(factors.begin(), factors.end());
    A* out = to.data<A>();
    const A *in = from.data<A>(), *factor = rounded.data();
    parallel_for(from.dim(0), kRowGrain, [=](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        A* row = out + r * cols;
        const A* x = in + r * cols;
        if (of_rows) {
          for (int64_t c = 0; c < cols; ++c) row[c] = x[c] * factor[r];
        } else {
          for (int64_t c = 0; c < cols; ++c) row[c] = x[c] * factor[c];
        }
      }
    });
  });
}

void matrix_step(const MatrixState& state, const MatrixBatch& batch, int64_t index, const Tensor& u,
                 const MatrixStep& step) {
  dispatch_accumulator(u, [&]<class A>() {
    const Factors<A> f = factors_of<A>(step);
    const int64_t count = batch.rows * batch.cols, first = index * count;
    A *w = state.master.data<A>() + first, *m = state.m.data<A>() + first;
    const A *g = state.grad.data<A>() + first, *along = u.data<A>();
    Bf16* value = state.value != nullptr ? state.value->data<Bf16>() + first : nullptr;
    parallel_for(count, kGrain, [&](int64_t begin, int64_t end) {
      constexpr int64_t kPiece = 4096;  // rounded while it is in the cache
      for (int64_t at = begin; at < end; at += kPiece) {
        update_range({w + at, m + at, g + at, along + at, value != nullptr ? value + at : nullptr,
                      std::min(kPiece, end - at)},
                     f);
      }
    });
  });
}

}  // namespace cpu
}  // namespace anabranch
