#include <numeric>
#include <vector>

#include "core/base/build.h"
#include "core/base/parallel_for.h"
#include "core/ops/scalar_mix.h"
#include "core/ops/vec_math.h"
#include "core/tensor/element.h"

namespace anabranch::cpu {
namespace {

constexpr int64_t kGrain = 1 << 12;

template <class T>
struct Sum {
  T* out;
  const T* const* xs;
  const Accumulator<T>* weights;
  int64_t begin, end, terms;
};

template <class T>
[[gnu::always_inline]] inline void add_terms(Sum<T> k) {
  using A = Accumulator<T>;
  constexpr int64_t kPiece = 256;
  for (int64_t first = k.begin; first < k.end; first += kPiece) {
    const int64_t n = k.end - first < kPiece ? k.end - first : kPiece;
    A sums[kPiece] = {};
    for (int64_t j = 0; j < k.terms; ++j) {
      const T* x = k.xs[j] + first;
      const A weight = k.weights[j];
      for (int64_t i = 0; i < n; ++i) sums[i] += weight * A(x[i]);
    }
    for (int64_t i = 0; i < n; ++i) k.out[first + i] = T(sums[i]);
  }
}

AB_CLONES void run(Sum<float> k) { add_terms(k); }

AB_CLONES void run(Sum<Bf16> k) { add_terms(k); }

void run(Sum<double> k) { add_terms(k); }

template <class T>
struct Pair {
  const T *a, *b;
  int64_t n;
};

template <class T>
[[gnu::always_inline]] inline double dot_of(Pair<T> k) {
  using A = Accumulator<T>;
  return static_cast<double>(lane_sum<A>(k.n, [k](int64_t i) { return A(k.a[i]) * A(k.b[i]); }));
}

AB_CLONES double run(Pair<float> k) { return dot_of(k); }

AB_CLONES double run(Pair<Bf16> k) { return dot_of(k); }

double run(Pair<double> k) { return dot_of(k); }

}  // namespace

void weighted_sum(Tensor& out, std::span<const Tensor> xs, const Tensor& weights, int64_t first,
                  int64_t stride) {
  std::vector<Tensor> factors;
  for (int64_t j = 0; j < std::ssize(xs); ++j) {
    factors.push_back(weights.view(first + j * stride, {1}));
  }
  mix({&out, 1}, xs, factors);
}

void mix(std::span<Tensor> ys, std::span<const Tensor> xs, std::span<const Tensor> weights) {
  const size_t J = xs.size();
  dispatch(xs[0].dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    std::vector<const T*> terms;
    for (const Tensor& x : xs) terms.push_back(x.data<T>());
    for (size_t i = 0; i < ys.size(); ++i) {
      std::vector<A> factors;
      for (const Tensor& w : weights.subspan(i * J, J)) factors.push_back(*w.data<A>());
      T* to = ys[i].data<T>();
      parallel_for(ys[i].count(), kGrain, [&](int64_t begin, int64_t end) {
        run(Sum<T>{to, terms.data(), factors.data(), begin, end, std::ssize(terms)});
      });
    }
  });
}

void add_dots(std::span<GradSink> dws, std::span<const Tensor> dys, std::span<const Tensor> xs) {
  for (size_t i = 0; i < dys.size(); ++i) {
    for (size_t j = 0; j < xs.size(); ++j) {
      GradSink& dw = dws[i * xs.size() + j];
      const double kept = dw.accumulate ? element(dw.out) : 0;
      set_element(dw.out, kept + (dys[i].empty() ? 0 : dot(dys[i], xs[j])));
    }
  }
}

double dot(const Tensor& a, const Tensor& b) {
  const int64_t blocks = (a.count() + kGrain - 1) / kGrain;
  std::vector<double> sums(static_cast<size_t>(blocks));
  dispatch(a.dtype(), [&]<class T>() {
    const T *x = a.data<T>(), *y = b.data<T>();
    parallel_for(a.count(), kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t at = begin; at < end; at += kGrain) {
        sums[static_cast<size_t>(at / kGrain)] =
            run(Pair<T>{x + at, y + at, std::min(kGrain, end - at)});
      }
    });
  });
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

}  // namespace anabranch::cpu
