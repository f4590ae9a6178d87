#include "core/base/parallel_for.h"
#include "core/ops/stream_balance.h"
#include "core/tensor/element.h"

namespace anabranch::cpu {

void stream_balance_forward(Tensor& loss, Tensor& p, const Tensor& g) {
  const int64_t sequences = p.dim(0), N = p.dim(1), T = g.dim(0) / sequences;
  double* loads = p.data<double>();
  dispatch(g.dtype(), [&]<class E>() {
    const E* gates = g.data<E>();
    parallel_for(sequences, 1, [=](int64_t begin, int64_t end) {
      for (int64_t s = begin; s < end; ++s) {
        double* load = loads + s * N;
        std::fill(load, load + N, 0.0);
        for (int64_t i = s * T; i < (s + 1) * T; ++i) {
          for (int64_t k = 0; k < N; ++k) {
            load[k] += static_cast<double>(static_cast<Accumulator<E>>(gates[i * N + k]));
          }
        }
        for (int64_t k = 0; k < N; ++k) load[k] /= static_cast<double>(T);
      }
    });
  });
  double sum = 0;
  for (const double load : p.span<double>()) sum += load * load;
  set_element(loss, static_cast<double>(N) * sum / static_cast<double>(sequences));
}

void stream_balance_backward(GradSink& dg, const Tensor& dloss, const Tensor& p) {
  const int64_t sequences = p.dim(0), N = p.dim(1), T = dg.out.dim(0) / sequences;
  const double factor =
      element(dloss) * 2 * static_cast<double>(N) / static_cast<double>(T * sequences);
  const double* loads = p.data<double>();
  const bool add = dg.accumulate;
  dispatch(dg.out.dtype(), [&]<class E>() {
    using A = Accumulator<E>;
    E* to = dg.out.data<E>();
    constexpr int64_t kGrain = 1024;
    parallel_for(sequences * T, kGrain, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        for (int64_t k = 0; k < N; ++k) {
          const A g = static_cast<A>(factor * loads[i / T * N + k]);
          to[i * N + k] = E(add ? A(to[i * N + k]) + g : g);
        }
      }
    });
  });
}

}  // namespace anabranch::cpu
