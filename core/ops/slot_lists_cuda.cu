#include <numeric>
#include <utility>

#include "core/ops/group_offsets.cuh"
#include "core/ops/slot_lists.h"
#include "core/ops/slot_plan.cuh"

namespace anabranch::cuda {
namespace {

// The last of `count` ascending begins that is not behind `at`; the first is not.
template <class Begin>
__device__ __forceinline__ int64_t part_of(int64_t at, int64_t count, const Begin& begin) {
  int64_t low = 0, high = count;
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    if (begin(middle) <= at) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

// Rows of which some are marked, in one bucket.
struct Marked {
  const uint8_t* mark;

  __device__ int operator()(int64_t row) const { return mark[row] != 0 ? 0 : -1; }
};

// A plan's slots by the rank that has their expert.
struct SlotsOfRanks {
  const int64_t* offsets;       // [E + 1] of the plan's groups
  const int64_t* first_expert;  // [ranks + 1]
  int64_t ranks, rows;

  // Where the slots of a rank's experts begin.
  [[nodiscard]] __device__ int64_t begin(int64_t rank) const { return offsets[first_expert[rank]]; }
};

// mark[r, m] = 1 where a slot of rank r takes row m. Several write the same.
__global__ void __launch_bounds__(kPlanThreads)
    mark_sources_kernel(uint8_t* mark, const int32_t* source, int64_t slots, SlotsOfRanks of) {
  const int64_t s = int64_t{blockIdx.x} * kPlanThreads + threadIdx.x;
  if (s >= slots || s >= of.begin(of.ranks)) return;
  const int32_t row = source[s];
  if (row < 0 || row >= of.rows) return;
  const int64_t rank = part_of(s, of.ranks, [&](int64_t r) { return of.begin(r); });
  mark[rank * of.rows + row] = 1;
}

struct PutRow {
  int32_t* rows;
  int64_t of_rank;

  __device__ void operator()(int64_t item, int /*bucket*/, int32_t at) const {
    rows[at] = static_cast<int32_t>(item % of_rank);
  }
};

// A thread for each rank. table: of a partition with `tiles` tiles for each.
__global__ void __launch_bounds__(kPlanThreads)
    counts_kernel(int64_t* counts, const int32_t* table, int64_t tiles, SlotsOfRanks of) {
  const int64_t rank = int64_t{blockIdx.x} * kPlanThreads + threadIdx.x;
  if (rank >= of.ranks) return;
  const int64_t first = of.first_expert[rank], end = of.first_expert[rank + 1];
  int64_t* to = counts + first + rank * kCountsBesideExperts;
  for (int64_t e = first; e < end; ++e) *to++ = of.offsets[e + 1] - of.offsets[e];
  *to++ = table[(rank + 1) * tiles] - table[rank * tiles];
  *to = of.rows;
}

// Slots by expert and rank, in pieces whose order at the experts and on arrival the host knows.
struct SlotPieces {
  const int64_t* begin;      // [count] in the order of the experts
  const int64_t* arrival;    // [count] where each piece begins on arrival
  const int64_t* first_row;  // [count] of its rank, among the rows of all
  const int64_t* rows_of;    // [count] its rank has
  int64_t count;
};

// Numbers the row of each slot among those of all ranks, and marks those that are taken.
__global__ void __launch_bounds__(kPlanThreads)
    number_slots_kernel(int32_t* number, int32_t* gate, int32_t* place, uint8_t* mark,
                        const int32_t* lists, int64_t slots, SlotPieces pieces) {
  const int64_t s = int64_t{blockIdx.x} * kPlanThreads + threadIdx.x;
  if (s >= slots) return;
  const int64_t i = part_of(s, pieces.count, [&](int64_t piece) { return pieces.begin[piece]; });
  const int64_t at = pieces.arrival[i] + s - pieces.begin[i];
  const int32_t row = lists[at];
  const bool there = 0 <= row && row < pieces.rows_of[i];
  const int64_t numbered = pieces.first_row[i] + row;
  gate[s] = static_cast<int32_t>(s);
  place[s] = static_cast<int32_t>(at);
  number[s] = there ? static_cast<int32_t>(numbered) : -1;
  if (there) mark[numbered] = 1;
}

struct PlaceRow {
  int32_t *group_row, *place_of;
  int64_t rows;

  __device__ void operator()(int64_t number, int /*bucket*/, int32_t at) const {
    place_of[number] = at;
    if (at < rows) group_row[at] = static_cast<int32_t>(number);
  }
};

// What was a row's number becomes its place among those that came.
__global__ void __launch_bounds__(kPlanThreads)
    place_sources_kernel(int32_t* source, const int32_t* place_of, int64_t slots) {
  const int64_t s = int64_t{blockIdx.x} * kPlanThreads + threadIdx.x;
  if (s >= slots) return;
  const int32_t number = source[s];
  if (number >= 0) source[s] = place_of[number];
}

// The pieces' table in a GPU's memory, [4, ranks * E].
Tensor table_of(const ArrivingSlots& coming, const Tensor& beside) {
  const int64_t ranks = std::ssize(coming.rows), E = std::ssize(coming.held) / ranks;
  const std::vector<int64_t> arrival = begins_of(coming.held), first = begins_of(coming.rows_of);
  Tensor table({4, ranks * E}, DType::kI64);
  auto* to = table.data<int64_t>();
  int64_t slots = 0;
  for (int64_t i = 0; i < ranks * E; ++i, ++to) {
    const auto r = static_cast<size_t>(i % ranks);
    const size_t piece = r * static_cast<size_t>(E) + static_cast<size_t>(i / ranks);
    to[0] = slots;
    to[ranks * E] = arrival[piece];
    to[2 * ranks * E] = first[r];
    to[3 * ranks * E] = coming.rows_of[r];
    slots += coming.held[piece];
  }
  return table.beside(beside);
}

Tensor no_marks(const Tensor& beside, int64_t count) {
  Tensor marks = beside.like({count}, DType::kU8, "slot_lists.marks");
  marks.fill_zero();
  return marks;
}

}  // namespace

// Moves a byte for each rank and row three times, and 4 for each slot.
Tensor rows_to_send(Tensor& counts, const SlotPlan& plan, std::span<const int64_t> first_expert) {
  const int64_t ranks = std::ssize(first_expert) - 1, S = plan.source.count(), M = plan.rows;
  const Tensor offsets = offsets_on_device(plan.groups, plan.source);
  const Tensor first = offsets_on_device({{first_expert.begin(), first_expert.end()}}, plan.source);
  const SlotsOfRanks of{offsets.device_data<int64_t>(), first.device_data<int64_t>(), ranks, M};
  Tensor marks = no_marks(plan.source, ranks * M);
  launch<mark_sources_kernel>(plan_grid(S), plan.source.stream(), marks.device_data<uint8_t>(),
                              plan.source.device_data<int32_t>(), S, of);
  const Tiles tiles(ranks, M);
  const Marked marked{std::as_const(marks).device_data<uint8_t>()};
  const Tensor table = partition_table(marks, tiles, 1, marked);
  Tensor rows = plan.source.like({std::min(S, ranks * M)}, DType::kI32, "rows_to_send");
  partition_place(table, tiles, 1, marked, PutRow{rows.device_data<int32_t>(), M});
  launch<counts_kernel>(plan_grid(ranks), plan.source.stream(), counts.device_data<int64_t>(),
                        table.device_data<int32_t>(), tiles.of_segment, of);
  return rows;
}

// Moves a byte for each row of all ranks three times, 4 for each that came, and 24 for each slot.
void arrived_slots(ArrivedSlots& slots, const Tensor& lists, const ArrivingSlots& coming) {
  const int64_t S = lists.count(), pieces = std::ssize(coming.held);
  if (S == 0) return;
  const int64_t all = std::reduce(coming.rows_of.begin(), coming.rows_of.end());
  const Tensor table = table_of(coming, lists);
  const auto* piece = table.device_data<int64_t>();
  Tensor marks = no_marks(lists, all);
  auto* source = slots.plan.source.device_data<int32_t>();
  launch<number_slots_kernel>(
      plan_grid(S), lists.stream(), source, slots.plan.gate.device_data<int32_t>(),
      slots.place.device_data<int32_t>(), marks.device_data<uint8_t>(),
      lists.device_data<int32_t>(), S,
      SlotPieces{piece, piece + pieces, piece + 2 * pieces, piece + 3 * pieces, pieces});
  const Tiles tiles(1, all);
  const Marked marked{std::as_const(marks).device_data<uint8_t>()};
  const Tensor places = partition_table(marks, tiles, 1, marked);
  Tensor place_of = lists.like({all}, DType::kI32, "arrived_slots.place_of");
  partition_place(places, tiles, 1, marked,
                  PlaceRow{slots.group_row.device_data<int32_t>(), place_of.device_data<int32_t>(),
                           slots.plan.rows});
  launch<place_sources_kernel>(plan_grid(S), lists.stream(), source,
                               std::as_const(place_of).device_data<int32_t>(), S);
}

}  // namespace anabranch::cuda
