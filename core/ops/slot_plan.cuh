// Plans that kernels make: slots by a stable partition, of which the host knows the most that there
// can be.
#pragma once

#include "core/ops/groups.h"
#include "core/ops/partition.cuh"

namespace anabranch::cuda {

inline constexpr int kPlanThreads = 256;

inline Grid plan_grid(int64_t count) {
  return {.blocks = dim3(static_cast<unsigned>((count + kPlanThreads - 1) / kPlanThreads)),
          .threads = dim3(kPlanThreads)};
}

template <class Offset>
__global__ void __launch_bounds__(kPlanThreads)
    offsets_kernel(Offset* offsets, const int32_t* table, int64_t experts, int64_t tiles) {
  const int64_t e = int64_t{blockIdx.x} * kPlanThreads + threadIdx.x;
  if (e <= experts) offsets[e] = table[e * tiles];
}

// The buckets of a partition as groups.
template <class Offset = int64_t>
Groups groups_of(const Tensor& table, const Tiles& tiles, int64_t experts, int64_t bound) {
  Groups groups;
  groups.offsets.clear();
  groups.on_device = table.like({experts + 1}, DType::kI64, "slots.offsets");
  groups.row_bound = bound;
  launch<offsets_kernel<Offset>>(plan_grid(experts + 1), table.stream(),
                                 groups.on_device.device_data<Offset>(),
                                 table.device_data<int32_t>(), experts, tiles.count());
  return groups;
}

template <class Index>
__global__ void __launch_bounds__(kPlanThreads)
    clear_unused_kernel(Index* source, Index* gate, const int32_t* used, int64_t slots) {
  const int64_t s = int64_t{blockIdx.x} * kPlanThreads + threadIdx.x;
  if (s < slots && s >= *used) source[s] = gate[s] = -1;
}

// Slots behind the last say that they are unused.
template <class Index = int32_t>
void clear_unused(SlotPlan& plan, const Tensor& table) {
  const int64_t slots = plan.source.count();
  launch<clear_unused_kernel<Index>>(
      plan_grid(slots), table.stream(), plan.source.device_data<Index>(),
      plan.gate.device_data<Index>(), table.device_data<int32_t>() + table.count() - 1, slots);
}

// A plan of at most `bound` slots of `rows` rows: one for each item that has a bucket. The slot's
// row is of.row(item), its gate of.gate(item).
template <class Of>
struct PlaceSlots {
  Of of;
  int32_t *source, *gate;

  __device__ void operator()(int64_t item, int /*expert*/, int32_t at) const {
    source[at] = of.row(item);
    gate[at] = of.gate(item);
  }
};

template <class Of>
SlotPlan plan_of(const Tensor& beside, int64_t items, int64_t experts, int64_t rows, int64_t bound,
                 Of of) {
  const Tiles tiles(1, items);
  const Tensor table = partition_table(beside, tiles, experts, of);
  SlotPlan plan{rows, groups_of(table, tiles, experts, bound),
                beside.like({bound}, DType::kI32, "slots.source"),
                beside.like({bound}, DType::kI32, "slots.gate")};
  const PlaceSlots<Of> place{of, plan.source.device_data<int32_t>(),
                             plan.gate.device_data<int32_t>()};
  partition_place(table, tiles, experts, of, place);
  clear_unused(plan, table);
  return plan;
}

}  // namespace anabranch::cuda
