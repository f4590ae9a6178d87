#include "core/ops/expert_line.h"
#include "core/ops/group_offsets.cuh"
#include "core/ops/sort_key.h"

namespace anabranch::cuda {
namespace {

inline constexpr int kLineThreads = 256;

// A plan, as kernels get it. A block's expert is blockIdx.y.
struct Lines {
  const int64_t* offsets;
  const int32_t *source, *gate, *numbers;  // numbers: null for 0, 1, ..

  [[nodiscard]] __device__ ExpertLine line() const {
    const int64_t first = offsets[blockIdx.y];
    return {source + first, numbers, static_cast<int32_t>(offsets[blockIdx.y + 1] - first)};
  }
};

__device__ __forceinline__ int32_t row_of_line() {
  return static_cast<int32_t>(blockIdx.x * kLineThreads + threadIdx.x);
}

// order[slot] = the slot that stands in its place: within a segment by falling score, each goes
// where the number of larger ones says. Its time grows with the square of a segment's slots.
template <class A, class Key = decltype(sort_key(A()))>
__global__ void __launch_bounds__(kLineThreads)
    by_affinity_kernel(int32_t* order, Lines lines, const A* score, int64_t segment_rows) {
  auto& tile = shared<Key[kLineThreads]>();
  const ExpertLine line = lines.line();
  const int64_t first = lines.offsets[blockIdx.y];
  const int32_t block = static_cast<int32_t>(blockIdx.x) * kLineThreads;
  if (block >= line.count) return;  // the whole block
  const auto key_of = [&](int32_t i) { return sort_key(score[lines.gate[first + i]]); };
  const auto begin_of = [&](int32_t i) {
    return line.before(line.number(i) / segment_rows * segment_rows);
  };
  const auto end_of = [&](int32_t i) {
    return line.before((line.number(i) / segment_rows + 1) * segment_rows);
  };
  const int32_t mine = row_of_line();
  const bool here = mine < line.count;
  const Key key = here ? key_of(mine) : Key(0);
  const int32_t begin = here ? begin_of(mine) : 0, end = here ? end_of(mine) : 0;
  const int32_t last = block + kLineThreads < line.count ? block + kLineThreads : line.count;
  const int32_t from = begin_of(block), to = end_of(last - 1);  // of all segments of the block
  int32_t before = 0;
  for (int32_t j0 = from; j0 < to; j0 += kLineThreads) {
    const int32_t j = j0 + static_cast<int32_t>(threadIdx.x);
    if (j < to) tile[threadIdx.x] = key_of(j);
    __syncthreads();
    const int32_t lowest = begin > j0 ? begin : j0;
    const int32_t highest = end < j0 + kLineThreads ? end : j0 + kLineThreads;
    for (int32_t i = lowest; i < highest; ++i) {
      const Key other = tile[i - j0];
      if (other > key || (other == key && i < mine)) ++before;
    }
    __syncthreads();  // the next round writes the tile
  }
  if (here) order[first + begin + before] = static_cast<int32_t>(first + mine);
}

struct Windows {
  int64_t of[kMostWindows];
};

struct RowTargets {
  int32_t *slots, *source, *gate, *positions, *first_key, *last_key;  // last_key: may be null
  int64_t first_slot;
};

// A row for each thread. Reads 12 bytes of a slot and writes 20 or 24 of its row; the searches for
// its segment and window stay in the cache.
__global__ void __launch_bounds__(kLineThreads)
    lay_out_kernel(RowTargets to, Lines lines, const int64_t* row_offsets, const int32_t* order,
                   LineForm form, Windows windows) {
  const int32_t i = row_of_line();
  const int64_t at = row_offsets[blockIdx.y] + i;
  if (at >= row_offsets[blockIdx.y + 1]) return;
  const ExpertLine line = lines.line();
  const int64_t first = lines.offsets[blockIdx.y];
  form.window = windows.of[blockIdx.y];
  int64_t slot = -1;
  RowOfLine row{0, i, i};
  if (i < line.count) {
    slot = order == nullptr ? first + i : order[first + i];
    row = line.row(i, static_cast<int32_t>(slot - first), form);
  }
  to.slots[at] = slot < 0 ? -1 : static_cast<int32_t>(to.first_slot + slot);
  to.source[at] = slot < 0 ? -1 : lines.source[slot];
  to.gate[at] = slot < 0 ? -1 : lines.gate[slot];
  to.positions[at] = row.position;
  to.first_key[at] = row.first_key;
  if (to.last_key != nullptr) to.last_key[at] = row.last_key;
}

}  // namespace

void expert_rows(ExpertRows& rows, const SlotPlan& plan, const RowLayout& layout,
                 std::span<const int64_t> windows, const Tensor& gates, const Tensor& numbers) {
  const int64_t E = plan.groups.count();
  AB_CHECK(E <= kMostWindows, "[expert_rows] ", E, " experts; at most ", kMostWindows);
  int64_t most = 0;  // rows of an expert
  for (int64_t e = 0; e < E; ++e) most = std::max(most, rows.plan.groups.size(e));
  const Tensor row_offsets = offsets_on_device(rows.plan.groups, plan.source);
  const Tensor offsets =
      plan.groups.on_host() ? row_offsets : offsets_on_device(plan.groups, plan.source);
  const Lines lines{offsets.device_data<int64_t>(), plan.source.device_data<int32_t>(),
                    plan.gate.device_data<int32_t>(),
                    numbers.empty() ? nullptr : numbers.device_data<int32_t>()};
  const Grid grid{.blocks = dim3(static_cast<unsigned>((most + kLineThreads - 1) / kLineThreads),
                                 static_cast<unsigned>(E)),
                  .threads = dim3(kLineThreads)};
  CUstream_st* const stream = plan.source.stream();
  Tensor order;
  if (layout.order == SlotOrder::kAffinity) {
    order = plan.source.like("expert_rows.order");
    dispatch(gates.dtype(), [&]<class T>() {
      using A = Accumulator<T>;
      launch<by_affinity_kernel<A>>(grid, stream, order.device_data<int32_t>(), lines,
                                    gates.device_data<A>(), layout.segment_rows);
    });
  }
  Windows of{};
  std::copy(windows.begin(), windows.end(), of.of);
  const RowTargets to{rows.slots.device_data<int32_t>(),
                      rows.plan.source.device_data<int32_t>(),
                      rows.plan.gate.device_data<int32_t>(),
                      rows.positions.device_data<int32_t>(),
                      rows.first_key.device_data<int32_t>(),
                      rows.last_key.empty() ? nullptr : rows.last_key.device_data<int32_t>(),
                      layout.first_slot};
  launch<lay_out_kernel>(
      grid, stream, to, lines, row_offsets.device_data<int64_t>(),
      order.empty() ? nullptr : order.device_data<int32_t>(),
      LineForm{layout.segment_rows, 0, layout.rope_position == SlotPosition::kCompact,
               layout.window_position == SlotPosition::kCompact},
      of);
}

}  // namespace anabranch::cuda
