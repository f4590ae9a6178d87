// The rows that experts attend over: each expert's slots in the order of its attention, and where
// those rows stand to one another.
//
// A segment are consecutive rows of the batch that may attend to one another. A row of a segment
// sees itself and the expert's rows of it that come before, of distances less than the window; with
// `both_ways` those after it too. Distances are of the text, or count the rows chosen.
//
// Where only a GPU knows how many slots an expert has, it gets as many rows as there can be, one
// for each row of the plan. Those behind its last slot are unused: slot, source and gate are -1,
// the position is 0, and each sees itself and is seen by no other.
#pragma once

#include <span>

#include "core/ops/expert_choice.h"

namespace anabranch {

enum class SlotPosition : uint8_t {
  kOriginal,  // in the segment
  kCompact    // among those chosen of it
};

struct RowLayout {
  int64_t segment_rows = 0;
  SlotOrder order = SlotOrder::kTime;  // kAffinity: segment by segment
  SlotPosition rope_position = SlotPosition::kOriginal;
  SlotPosition window_position = SlotPosition::kOriginal;
  bool both_ways = false;
  int64_t first_slot = 0;  // what the slots of the plan are counted from
};

// What one expert attends over.
struct RowsOfExpert {
  Tensor source, positions;    // [S] int32
  Tensor first_key, last_key;  // [1, S] int32, of attention(); no last one: empty
};

struct ExpertRows {
  SlotPlan plan;     // of the rows, by expert; the host knows its groups
  Tensor slots;      // [R] int32: the slot of each row, as the layout counts them
  Tensor positions;  // [R] int32: for RoPE
  Tensor first_key;  // [R] int32: counted within the expert
  Tensor last_key;   // the same, or empty

  // Those of expert `e`: views.
  [[nodiscard]] RowsOfExpert of(int64_t e) const;
};

// Lays out the slots of `plan`, which has those of an expert by index.
//
//   windows  [E]  of each expert; 0: no limit
//   gates    the scores that plan.gate indexes, float32 or float64; read by kAffinity alone
//   numbers  [plan.rows] int32: where each row stands in the batch, ascending; empty: 0, 1, ..
//
// Throws Error if these do not fit, or windows of the text are asked for of rows by affinity.
ExpertRows expert_rows(const SlotPlan& plan, const RowLayout& layout,
                       std::span<const int64_t> windows, const Tensor& gates,
                       const Tensor& numbers = {});

namespace cpu {

// Fills all of `rows`, whose tensors are there.
void expert_rows(ExpertRows& rows, const SlotPlan& plan, const RowLayout& layout,
                 std::span<const int64_t> windows, const Tensor& gates, const Tensor& numbers);

}  // namespace cpu

namespace cuda {

inline constexpr int kMostWindows = 128;

void expert_rows(ExpertRows& rows, const SlotPlan& plan, const RowLayout& layout,
                 std::span<const int64_t> windows, const Tensor& gates, const Tensor& numbers);

}  // namespace cuda
}  // namespace anabranch
