#include "core/cuda/reduce.cuh"
#include "core/ops/combine_rows.h"
#include "core/ops/row_packs.cuh"

namespace anabranch::cuda {
namespace {

inline constexpr int kSlotWarps = 8;  // of a block

template <class A>
__global__ void __launch_bounds__(kRowThreads)
    slot_gates_kernel(A* weight, const A* gates, int64_t gate_count, const int32_t* gate,
                      int64_t slots) {
  const int64_t s = int64_t{blockIdx.x} * kRowThreads + threadIdx.x;
  if (s >= slots) return;
  const int32_t i = gate[s];
  weight[s] = 0 <= i && i < gate_count ? gates[i] : A(0);
}

template <class T, class A = Accumulator<T>>
struct CombineBackward {
  T* dz;      // null if not wanted
  A* dgates;  // the same
  const T *dy, *z;
  const A* weight;
  const int32_t *source, *gate;
  int64_t slots, rows, gate_count, width;
  bool accumulate;  // dz
};

// A warp for each slot. Reads dy and z of a slot once and writes its dz once.
template <class T, int kN>
__global__ void __launch_bounds__(kSlotWarps* kWarp) combine_backward_kernel(CombineBackward<T> k) {
  using A = Accumulator<T>;
  const int64_t s = int64_t{blockIdx.x} * kSlotWarps + threadIdx.x / kWarp;
  if (s >= k.slots) return;  // a whole warp, and no barrier of the block follows
  const int64_t row = k.source[s];
  const bool used = 0 <= row && row < k.rows;
  const A weight = used ? k.weight[s] : A(0);
  A product = 0;
  for (int64_t c = threadIdx.x % kWarp * kN; c < k.width; c += kWarp * kN) {
    const int64_t at = s * k.width + c;
    Pack<T, kN> dy{}, z{}, dz{};
    if (used) dy = load<kN>(k.dy + row * k.width + c);
    if (used && k.dgates != nullptr) z = load<kN>(k.z + at);
    if (k.dz != nullptr && k.accumulate) dz = load<kN>(k.dz + at);
    for (int i = 0; i < kN; ++i) {
      const A d = wide(dy.v[i]);
      product += d * wide(z.v[i]);
      dz.v[i] = narrow<T>(k.accumulate ? wide(dz.v[i]) + weight * d : weight * d);
    }
    if (k.dz != nullptr) store(k.dz + at, dz);
  }
  if (k.dgates == nullptr) return;
  product = warp_sum(product);
  const int32_t gate = k.gate[s];
  const bool gated = used && 0 <= gate && gate < k.gate_count;
  if (gated && threadIdx.x % kWarp == 0) k.dgates[gate] += product;  // no other slot has this gate
}

}  // namespace

void slot_gates(Tensor& weight, const Tensor& gates, const Tensor& gate) {
  dispatch(gates.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    const auto blocks = static_cast<unsigned>((gate.count() + kRowThreads - 1) / kRowThreads);
    launch<slot_gates_kernel<A>>({.blocks = dim3(blocks), .threads = dim3(kRowThreads)},
                                 weight.stream(), weight.device_data<A>(), gates.device_data<A>(),
                                 gates.count(), gate.device_data<int32_t>(), gate.count());
  });
}

void combine_rows_backward(GradSink* dz, GradSink* dgates, const Tensor& dy, const Tensor& z,
                           const Tensor& weight, const SlotPlan& plan, int64_t first) {
  const int64_t S = z.dim(0), width = z.dim(1);
  if (dgates != nullptr && !dgates->accumulate) dgates->out.fill_zero();
  dispatch(z.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    const CombineBackward<T> k{dz != nullptr ? dz->out.device_data<T>() : nullptr,
                               dgates != nullptr ? dgates->out.device_data<A>() : nullptr,
                               dy.device_data<T>(),
                               z.device_data<T>(),
                               weight.device_data<A>() + first,
                               plan.source.device_data<int32_t>() + first,
                               plan.gate.device_data<int32_t>() + first,
                               S,
                               dy.dim(0),
                               dgates != nullptr ? dgates->out.count() : 0,
                               width,
                               dz != nullptr && dz->accumulate};
    const Grid grid{.blocks = dim3(static_cast<unsigned>((S + kSlotWarps - 1) / kSlotWarps)),
                    .threads = dim3(kSlotWarps * kWarp)};
    with_packs<T>(width, aligned_for_packs(k.dz, k.dy, k.z),
                  [&]<int kN>() { launch<combine_backward_kernel<T, kN>>(grid, z.stream(), k); });
  });
}

}  // namespace anabranch::cuda
