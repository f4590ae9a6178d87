#include <algorithm>
#include <numeric>
#include <vector>

#include "core/base/parallel_for.h"
#include "core/ops/expert_line.h"
#include "core/ops/sort_key.h"

namespace anabranch::cpu {
namespace {

// The slots of a line in the order of their attention.
std::vector<int32_t> in_order(const ExpertLine& line, const int32_t* gate, const Tensor& gates,
                              const RowLayout& layout) {
  std::vector<int32_t> slots(static_cast<size_t>(line.count));
  std::iota(slots.begin(), slots.end(), 0);
  if (layout.order == SlotOrder::kTime) return slots;
  dispatch(gates.dtype(), [&]<class T>() {
    const auto* score = gates.data<Accumulator<T>>();
    std::ranges::stable_sort(slots, [&](int32_t a, int32_t b) {
      const int64_t of_a = line.number(a) / layout.segment_rows;
      const int64_t of_b = line.number(b) / layout.segment_rows;
      return of_a != of_b ? of_a < of_b : sort_key(score[gate[a]]) > sort_key(score[gate[b]]);
    });
  });
  return slots;
}

}  // namespace

void expert_rows(ExpertRows& rows, const SlotPlan& plan, const RowLayout& layout,
                 std::span<const int64_t> windows, const Tensor& gates, const Tensor& numbers) {
  const auto* number = numbers.empty() ? nullptr : numbers.data<int32_t>();
  const auto *source = plan.source.data<int32_t>(), *gate = plan.gate.data<int32_t>();
  auto* const slots = rows.slots.data<int32_t>();
  auto* const sources = rows.plan.source.data<int32_t>();
  auto* const gates_of = rows.plan.gate.data<int32_t>();
  auto* const positions = rows.positions.data<int32_t>();
  auto* const first_key = rows.first_key.data<int32_t>();
  auto* const last_key = rows.last_key.empty() ? nullptr : rows.last_key.data<int32_t>();
  const auto lay_out = [&](int64_t e) {
    const int64_t first = plan.groups.begin(e);
    const ExpertLine line{source + first, number, static_cast<int32_t>(plan.groups.size(e))};
    const LineForm form{layout.segment_rows, windows[static_cast<size_t>(e)],
                        layout.rope_position == SlotPosition::kCompact,
                        layout.window_position == SlotPosition::kCompact};
    const std::vector<int32_t> order = in_order(line, gate + first, gates, layout);
    for (int32_t i = 0; i < line.count; ++i) {
      const int32_t slot = order[static_cast<size_t>(i)];
      const RowOfLine row = line.row(i, slot, form);
      slots[first + i] = static_cast<int32_t>(layout.first_slot + first + slot);
      sources[first + i] = source[first + slot];
      gates_of[first + i] = gate[first + slot];
      positions[first + i] = row.position;
      first_key[first + i] = row.first_key;
      if (last_key != nullptr) last_key[first + i] = row.last_key;
    }
  };
  parallel_for(plan.groups.count(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t e = begin; e < end; ++e) lay_out(e);
  });
}

}  // namespace anabranch::cpu
