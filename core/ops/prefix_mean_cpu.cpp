#include <algorithm>
#include <vector>

#include "core/base/parallel_for.h"
#include "core/ops/prefix_mean.h"

namespace anabranch::cpu {
namespace {

using Kind = MeanForm::Kind;

// A strip of channels of one sequence: what a thread works on.
constexpr int64_t kStrip = 64;

struct Strips {
  int64_t batch, tokens, width, per_row;

  Strips(const Tensor& v, int64_t sequences)
      : batch(sequences),
        tokens(v.dim(0) / sequences),
        width(v.dim(1)),
        per_row((width + kStrip - 1) / kStrip) {}

  [[nodiscard]] int64_t count() const { return batch * per_row; }

  // Calls body(first row, first channel, channels) for each.
  template <class Body>
  void each(const Body& body) const {
    parallel_for(count(), 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t c = i % per_row * kStrip;
        body(i / per_row * tokens, c, std::min(kStrip, width - c));
      }
    });
  }
};

template <class A>
struct Weights {
  A kept, added;  // of the old sum, of the new row

  explicit Weights(const MeanForm& form)
      : kept(form.kind == Kind::kEma ? A(form.decay) : A(1)),
        added(form.kind == Kind::kEma ? A(1 - form.decay) : A(1)) {}
};

int64_t first_of(const int32_t* starts, int64_t row) { return starts != nullptr ? starts[row] : 0; }

// What divides a sum of tokens f..t.
template <class A>
A divisor(const MeanForm& form, int64_t tokens) {
  return form.kind == Kind::kEma ? A(1) : static_cast<A>(tokens);
}

template <class T>
void forward(T* c, const T* v, const Strips& strips, const MeanForm& form, const int32_t* starts) {
  using A = Accumulator<T>;
  const Weights<A> w(form);
  strips.each([&](int64_t row, int64_t channel, int64_t n) {
    A sums[kStrip] = {};
    const auto at = [&](int64_t t) { return (row + t) * strips.width + channel; };
    if (form.kind == Kind::kGlobal) {
      for (int64_t t = 0; t < strips.tokens; ++t) {
        for (int64_t i = 0; i < n; ++i) sums[i] += A(v[at(t) + i]);
      }
    }
    for (int64_t t = 0; t < strips.tokens; ++t) {
      const int64_t first = first_of(starts, row + t);
      if (form.kind != Kind::kGlobal) {
        if (first == t) std::fill(sums, sums + n, A(0));
        for (int64_t i = 0; i < n; ++i) sums[i] = w.kept * sums[i] + w.added * A(v[at(t) + i]);
      }
      const int64_t seen = form.kind == Kind::kGlobal ? strips.tokens : t - first + 1;
      const A by = A(1) / divisor<A>(form, seen);
      for (int64_t i = 0; i < n; ++i) c[at(t) + i] = T(sums[i] * by);
    }
  });
}

template <class T>
void backward(GradSink& to, const T* dc, const Strips& strips, const MeanForm& form,
              const int32_t* starts) {
  using A = Accumulator<T>;
  const Weights<A> w(form);
  T* dv = to.out.data<T>();
  const bool add = to.accumulate;
  strips.each([&](int64_t row, int64_t channel, int64_t n) {
    A sums[kStrip] = {};  // of what later tokens send back
    const auto at = [&](int64_t t) { return (row + t) * strips.width + channel; };
    if (form.kind == Kind::kGlobal) {
      const A by = A(1) / static_cast<A>(strips.tokens);
      for (int64_t t = 0; t < strips.tokens; ++t) {
        for (int64_t i = 0; i < n; ++i) sums[i] += A(dc[at(t) + i]) * by;
      }
    }
    for (int64_t t = strips.tokens; t-- > 0;) {
      const int64_t first = first_of(starts, row + t);
      if (form.kind != Kind::kGlobal) {
        const A by = A(1) / divisor<A>(form, t - first + 1);
        for (int64_t i = 0; i < n; ++i) sums[i] = w.kept * sums[i] + A(dc[at(t) + i]) * by;
      }
      for (int64_t i = 0; i < n; ++i) {
        const A g = w.added * sums[i];
        dv[at(t) + i] = T(add ? A(dv[at(t) + i]) + g : g);
      }
      if (form.kind != Kind::kGlobal && first == t) std::fill(sums, sums + n, A(0));
    }
  });
}

const int32_t* data_of(const Tensor& starts) {
  return starts.empty() ? nullptr : starts.data<int32_t>();
}

}  // namespace

void prefix_mean_forward(Tensor& c, const Tensor& v, int64_t batch, const MeanForm& form,
                         const Tensor& starts) {
  dispatch(v.dtype(), [&]<class T>() {
    forward(c.data<T>(), v.data<T>(), Strips(v, batch), form, data_of(starts));
  });
}

void prefix_mean_backward(GradSink& dv, const Tensor& dc, int64_t batch, const MeanForm& form,
                          const Tensor& starts) {
  dispatch(dc.dtype(), [&]<class T>() {
    backward(dv, dc.data<T>(), Strips(dc, batch), form, data_of(starts));
  });
}

void prefix_mean_step(Tensor& c, const Tensor& v, std::span<const int64_t> new_tokens,
                      RunningMean& state, const MeanForm& form) {
  const int64_t C = v.dim(1), S = v.dim(0) / std::ssize(new_tokens);
  c.fill_zero();
  dispatch(v.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    const Weights<A> w(form);
    for (size_t b = 0; b < new_tokens.size(); ++b) {
      A* sums = state.sums.data<A>() + static_cast<int64_t>(b) * C;
      for (int64_t t = 0; t < new_tokens[b]; ++t) {
        const int64_t at = (static_cast<int64_t>(b) * S + t) * C;
        const A by = A(1) / divisor<A>(form, ++state.counts[b]);
        for (int64_t i = 0; i < C; ++i) {
          sums[i] = w.kept * sums[i] + w.added * A(v.data<T>()[at + i]);
          c.data<T>()[at + i] = T(sums[i] * by);
        }
      }
    }
  });
}

}  // namespace anabranch::cpu
