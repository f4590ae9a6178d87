#include "core/ops/expert_rows.h"

#include "core/base/build.h"

namespace anabranch {
namespace {

void check(const SlotPlan& plan, const RowLayout& layout, std::span<const int64_t> windows,
           const Tensor& gates, const Tensor& numbers) {
  const int64_t E = std::ssize(windows);
  check_groups("expert_rows", plan.groups, E, plan.source.count());
  AB_CHECK(layout.segment_rows > 0, "[expert_rows] segments of ", layout.segment_rows, " rows");
  AB_CHECK(layout.order == SlotOrder::kTime || gates.dtype() == accumulator_of(gates.dtype()),
           "[expert_rows] the gates are ", name_of(gates.dtype()), " but need float32 or float64");
  AB_CHECK(numbers.empty() || (numbers.dtype() == DType::kI32 && numbers.count() == plan.rows),
           "[expert_rows] numbers are ", name_of(numbers.dtype()), numbers.shape(), " for ",
           plan.rows, " rows");
  const bool by_text = layout.window_position == SlotPosition::kOriginal;
  for (const int64_t window : windows) {
    AB_CHECK(window == 0 || !by_text || layout.order == SlotOrder::kTime,
             "[expert_rows] rows by affinity, where no window of the text lies together");
  }
}

void lay_out(ExpertRows& rows, const SlotPlan& plan, const RowLayout& layout,
             std::span<const int64_t> windows, const Tensor& gates, const Tensor& numbers) {
  if (plan.source.device().is_cpu()) {
    return cpu::expert_rows(rows, plan, layout, windows, gates, numbers);
  }
  if constexpr (build::kCuda) {
    return cuda::expert_rows(rows, plan, layout, windows, gates, numbers);
  }
  AB_FAIL("[expert_rows] no kernel for this device in this build");
}

// Of so many rows of each expert as the host knows that there can be.
Groups row_groups(const SlotPlan& plan) {
  if (plan.groups.on_host()) return plan.groups;
  const int64_t most = std::min(plan.groups.row_bound, plan.rows);
  Groups groups;
  for (int64_t e = 1; e <= plan.groups.count(); ++e) groups.offsets.push_back(e * most);
  return groups;
}

}  // namespace

RowsOfExpert ExpertRows::of(int64_t e) const {
  const int64_t first = plan.groups.begin(e), S = plan.groups.size(e);
  return {plan.source.view(first, {S}), positions.view(first, {S}), first_key.view(first, {1, S}),
          last_key.empty() ? Tensor() : last_key.view(first, {1, S})};
}

ExpertRows expert_rows(const SlotPlan& plan, const RowLayout& layout,
                       std::span<const int64_t> windows, const Tensor& gates,
                       const Tensor& numbers) {
  check(plan, layout, windows, gates, numbers);
  ExpertRows rows;
  rows.plan = {plan.rows, row_groups(plan), {}, {}};
  const Shape shape{rows.plan.groups.rows()};
  const auto ints = [&](const char* tag) { return plan.source.like(shape, DType::kI32, tag); };
  rows.plan.source = ints("expert_rows.source");
  rows.plan.gate = ints("expert_rows.gate");
  rows.slots = ints("expert_rows.slots");
  rows.positions = ints("expert_rows.positions");
  rows.first_key = ints("expert_rows.first_key");
  if (layout.both_ways) rows.last_key = ints("expert_rows.last_key");
  lay_out(rows, plan, layout, windows, gates, numbers);
  return rows;
}

}  // namespace anabranch
