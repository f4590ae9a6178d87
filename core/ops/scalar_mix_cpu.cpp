#include <numeric>
#include <vector>

#include "core/base/build.h"
#include "core/base/parallel_for.h"
#include "core/ops/scalar_mix.h"
#include "core/ops/vec_math.h"

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

Tensor weights_of(std::span<const double> weights, const Tensor& like) {
  Tensor all = like.like({std::ssize(weights)}, accumulator_of(like.dtype()), "weights");
  dispatch(all.dtype(), [&]<class T>() {
    for (size_t j = 0; j < weights.size(); ++j) {
      all.data<T>()[j] = T(static_cast<Accumulator<T>>(weights[j]));
    }
  });
  return all;
}

void weighted_sum(Tensor& out, std::span<const Tensor> xs, const Tensor& weights, int64_t first,
                  int64_t stride) {
  dispatch(out.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    std::vector<const T*> terms;
    std::vector<A> factors;
    for (size_t j = 0; j < xs.size(); ++j) {
      terms.push_back(xs[j].data<T>());
      factors.push_back(weights.data<A>()[first + static_cast<int64_t>(j) * stride]);
    }
    T* to = out.data<T>();
    parallel_for(out.count(), kGrain, [&](int64_t begin, int64_t end) {
      run(Sum<T>{to, terms.data(), factors.data(), begin, end, std::ssize(terms)});
    });
  });
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
