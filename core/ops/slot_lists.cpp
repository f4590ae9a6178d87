#include "core/ops/slot_lists.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "core/base/build.h"

namespace anabranch {
namespace {

void sort(ArrivedSlots& slots, const Tensor& lists, const ArrivingSlots& coming) {
  if (lists.device().is_cpu()) return cpu::arrived_slots(slots, lists, coming);
  if constexpr (build::kCuda) return cuda::arrived_slots(slots, lists, coming);
  AB_FAIL("[arrived_slots] no kernel for this device in this build");
}

void check_coming(const Tensor& lists, const ArrivingSlots& coming) {
  const int64_t ranks = std::ssize(coming.rows);
  AB_CHECK(ranks > 0 && std::ssize(coming.rows_of) == ranks && std::ssize(coming.held) % ranks == 0,
           "[arrived_slots] counts of ", coming.held.size(), " slots, ", ranks, " and ",
           coming.rows_of.size(), " rows");
  const auto S = std::reduce(coming.held.begin(), coming.held.end());
  AB_CHECK(lists.dtype() == DType::kI32 && lists.count() == S, "[arrived_slots] lists of ",
           name_of(lists.dtype()), lists.shape(), " for ", S, " slots");
  const auto all = std::reduce(coming.rows_of.begin(), coming.rows_of.end());
  AB_CHECK(all <= std::numeric_limits<int32_t>::max(), "[arrived_slots] ", all,
           " rows are more than 32 bits count");
}

}  // namespace

std::vector<int64_t> begins_of(std::span<const int64_t> lengths) {
  std::vector<int64_t> all(lengths.size(), 0);
  std::exclusive_scan(lengths.begin(), lengths.end(), all.begin(), int64_t{0});
  return all;
}

Tensor rows_to_send(Tensor counts, const SlotPlan& plan, std::span<const int64_t> first_expert) {
  const int64_t E = plan.groups.count(), ranks = std::ssize(first_expert) - 1;
  check_groups("rows_to_send", plan.groups, E, plan.source.count());
  AB_CHECK(ranks > 0 && first_expert.front() == 0 && first_expert.back() == E &&
               std::is_sorted(first_expert.begin(), first_expert.end()),
           "[rows_to_send] ", E, " experts lie on ", ranks, " ranks");
  AB_CHECK(counts.dtype() == DType::kI64 && counts.count() == E + kCountsBesideExperts * ranks,
           "[rows_to_send] counts are ", name_of(counts.dtype()), counts.shape(), " of ", E,
           " experts on ", ranks, " ranks");
  if (plan.source.device().is_cpu()) return cpu::rows_to_send(counts, plan, first_expert);
  if constexpr (build::kCuda) return cuda::rows_to_send(counts, plan, first_expert);
  AB_FAIL("[rows_to_send] no kernel for this device in this build");
}

ArrivedSlots arrived_slots(const Tensor& lists, const ArrivingSlots& coming) {
  check_coming(lists, coming);
  const int64_t ranks = std::ssize(coming.rows), E = std::ssize(coming.held) / ranks;
  const auto ints = [&](int64_t count, const char* tag) {
    return lists.like({count}, DType::kI32, tag);
  };
  ArrivedSlots slots;
  slots.plan.rows = std::reduce(coming.rows.begin(), coming.rows.end());
  for (int64_t e = 0; e < E; ++e) {
    int64_t count = 0;
    for (int64_t r = 0; r < ranks; ++r) count += coming.held[static_cast<size_t>(r * E + e)];
    slots.plan.groups.offsets.push_back(slots.plan.groups.rows() + count);
  }
  slots.plan.source = ints(lists.count(), "arrived_slots.source");
  slots.plan.gate = ints(lists.count(), "arrived_slots.gate");
  slots.place = ints(lists.count(), "arrived_slots.place");
  slots.group_row = ints(slots.plan.rows, "arrived_slots.group_row");
  sort(slots, lists, coming);
  return slots;
}

}  // namespace anabranch
