#include <cmath>

#include "core/ops/adamw_factors.h"
#include "core/tensor/elementwise.cuh"

namespace anabranch::cuda {
namespace {

// Moves 28 bytes of an element of float32, and 2 for its rounded value.
template <class A>
struct Update {
  A *p, *m, *v;
  const A* g;
  Bf16* value;  // or null
  AdamwFactors<A> f;

  template <int kN>
  __device__ void at(int64_t i) const {
    const Pack<A, kN> gs = load<kN>(g + i);
    Pack<A, kN> ps = load<kN>(p + i), ms = load<kN>(m + i), vs = load<kN>(v + i);
    for (int j = 0; j < kN; ++j) {
      const A grad = gs.v[j] * f.grad_scale;
      ms.v[j] += (grad - ms.v[j]) * f.new_m;
      vs.v[j] = vs.v[j] * f.beta2 + grad * grad * f.new_v;
      const A root = std::sqrt(vs.v[j]) * f.root_correction + f.eps;
      ps.v[j] = ps.v[j] * f.kept - f.rate * ms.v[j] / root;
    }
    store(p + i, ps);
    store(m + i, ms);
    store(v + i, vs);
    if (value == nullptr) return;
    Pack<Bf16, kN> rounded;
    for (int j = 0; j < kN; ++j) rounded.v[j] = narrow<Bf16>(static_cast<float>(ps.v[j]));
    store(value + i, rounded);
  }
};

template <class A>
void run(Tensor& master, Tensor& m, Tensor& v, const Tensor& grad, Tensor* value,
         const AdamwStep& step) {
  constexpr int kN = kPack<A>;
  const Update<A> k{master.device_data<A>(),
                    m.device_data<A>(),
                    v.device_data<A>(),
                    grad.device_data<A>(),
                    value != nullptr ? value->device_data<Bf16>() : nullptr,
                    AdamwFactors<A>(step)};
  const bool packs = aligned_for_packs(k.p, k.m, k.v, k.g) &&
                     reinterpret_cast<uintptr_t>(k.value) % alignof(Pack<Bf16, kN>) == 0;
  each_pack<kN>(k, master.count(), packs, master.stream());
}

}  // namespace

void adamw(Tensor& master, Tensor& m, Tensor& v, const Tensor& grad, Tensor* value,
           const AdamwStep& step) {
  if (master.dtype() == DType::kF64) return run<double>(master, m, v, grad, value, step);
  run<float>(master, m, v, grad, value, step);
}

}  // namespace anabranch::cuda
