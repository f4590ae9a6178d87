// What ranks tell each other of the rows that go to experts of theirs, and the slots there in the
// order that one rank with all rows and experts would have.
//
//   rows_to_send   the rows that the experts of each rank take, each once, and how many
//   arrived_slots  the slots of some experts, as the ranks sent them, by expert
#pragma once

#include <span>
#include <vector>

#include "core/ops/groups.h"

namespace anabranch {

// Behind the slots of each expert, what a rank tells another: how many rows it sends, and has.
inline constexpr int64_t kCountsBesideExperts = 2;

// Lists the rows that some slot of a rank's experts takes, ascending, by rank.
//
//   counts        [E + 2 ranks] int64, filled: of each rank the slots of its experts, the rows
//                 that go to it, and plan.rows
//   plan          the slots of all E experts
//   first_expert  [ranks + 1]  which each rank has, ascending from 0 to E
//
// Returns [R] int32. On a GPU, where the host does not know how many they are, R is the most that
// there can be, and what stands behind the last is undefined. Throws Error if a slot's row is not
// one of the plan's; on a GPU such a slot is unused.
Tensor rows_to_send(Tensor counts, const SlotPlan& plan, std::span<const int64_t> first_expert);

// What ranks have sent.
struct ArrivingSlots {
  std::vector<int64_t> held;     // [ranks, E] slots of each rank for each expert here
  std::vector<int64_t> rows;     // [ranks] rows that some slot of those takes
  std::vector<int64_t> rows_of;  // [ranks] rows that each rank has in all
};

struct ArrivedSlots {
  SlotPlan plan;     // of the rows that came; by expert, then by rank, then as sent; gates 0, 1, ..
  Tensor place;      // [S] int32: where each slot lay on arrival
  Tensor group_row;  // [plan.rows] int32: each row's number among those of all ranks
};

// Sorts slots by expert.
//
//   lists   [S] int32, by rank, then by expert: the row of each slot, as its rank counts them
//   coming  the host knows it on a GPU, too
//
// Throws Error if `lists` has another number of slots, and if a rank's take another number of rows,
// or one that it does not have; on a GPU the latter are unused, and no one counts rows.
ArrivedSlots arrived_slots(const Tensor& lists, const ArrivingSlots& coming);

// Where parts of some lengths begin.
std::vector<int64_t> begins_of(std::span<const int64_t> lengths);

namespace cpu {

Tensor rows_to_send(Tensor& counts, const SlotPlan& plan, std::span<const int64_t> first_expert);
// Fills the tensors, which are there.
void arrived_slots(ArrivedSlots& slots, const Tensor& lists, const ArrivingSlots& coming);

}  // namespace cpu

namespace cuda {

Tensor rows_to_send(Tensor& counts, const SlotPlan& plan, std::span<const int64_t> first_expert);
void arrived_slots(ArrivedSlots& slots, const Tensor& lists, const ArrivingSlots& coming);

}  // namespace cuda
}  // namespace anabranch
