#include <algorithm>
#include <vector>

#include "core/base/build.h"
#include "core/base/parallel_for.h"
#include "core/ops/combine_rows.h"
#include "core/ops/vec_math.h"

namespace anabranch::cpu {
namespace {

template <class T, class A = Accumulator<T>>
struct Slot {
  T* dz;  // null if it is not wanted
  const T *dy, *z;
  A weight;
  int64_t width;
  bool accumulate;
};

// Writes dz; returns the gate's gradient.
template <class T, class A>
[[gnu::always_inline]] inline A backward_slot(const Slot<T, A>& k) {
  const T *dy = k.dy, *z = k.z;
  if (k.dz != nullptr) {
    T* dz = k.dz;
    const A weight = k.weight;
    if (k.accumulate) {
#pragma GCC ivdep
      for (int64_t c = 0; c < k.width; ++c) dz[c] = T(A(dz[c]) + weight * A(dy[c]));
    } else {
#pragma GCC ivdep
      for (int64_t c = 0; c < k.width; ++c) dz[c] = T(weight * A(dy[c]));
    }
  }
  return lane_sum<A>(k.width, [=](int64_t c) { return A(dy[c]) * A(z[c]); });
}

AB_CLONES float run(const Slot<float>& k) { return backward_slot(k); }

AB_CLONES float run(const Slot<Bf16>& k) { return backward_slot(k); }

double run(const Slot<double>& k) { return backward_slot(k); }

}  // namespace

void slot_gates(Tensor& weight, const Tensor& gates, const Tensor& gate) {
  const auto* index = gate.data<int32_t>();
  dispatch(gates.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    const A* from = gates.data<A>();
    std::transform(index, index + gate.count(), weight.data<A>(),
                   [from](int32_t i) { return from[i]; });
  });
}

void combine_rows_backward(GradSink* dz, GradSink* dgates, const Tensor& dy, const Tensor& z,
                           const Tensor& weight, const SlotPlan& plan, int64_t first) {
  const int64_t S = z.dim(0), width = z.dim(1);
  const int64_t grain = std::max<int64_t>(1, (1 << 13) / std::max<int64_t>(width, 1));
  const auto* const row = plan.source.data<int32_t>() + first;
  const auto* const gate = plan.gate.data<int32_t>() + first;
  dispatch(z.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    std::vector<A> to_gates(static_cast<size_t>(S));
    T* to = dz != nullptr ? dz->out.data<T>() : nullptr;
    const bool accumulate = dz != nullptr && dz->accumulate;
    const T *gradient = dy.data<T>(), *from = z.data<T>();
    const A* weights = weight.data<A>() + first;
    parallel_for(S, grain, [=, &to_gates](int64_t begin, int64_t end) {
      for (int64_t s = begin; s < end; ++s) {
        to_gates[static_cast<size_t>(s)] =
            run(Slot<T>{to != nullptr ? to + s * width : nullptr, gradient + row[s] * width,
                        from + s * width, weights[s], width, accumulate});
      }
    });
    if (dgates == nullptr) return;
    A* out = dgates->out.data<A>();
    if (!dgates->accumulate) std::fill(out, out + dgates->out.count(), A(0));
    for (int64_t s = 0; s < S; ++s) out[gate[s]] += to_gates[static_cast<size_t>(s)];
  });
}

}  // namespace anabranch::cpu
