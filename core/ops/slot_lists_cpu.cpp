#include <algorithm>
#include <numeric>

#include "core/ops/slot_lists.h"

namespace anabranch::cpu {
namespace {

// Which of a rank's rows some slots of it take.
class Taken {
 public:
  Taken(std::span<const int32_t> rows_of_slots, int64_t rows)
      : place_(static_cast<size_t>(rows), -1) {
    for (const int32_t row : rows_of_slots) {
      AB_CHECK(row >= 0 && row < rows, "[slot_lists] a slot takes row ", row, " of ", rows);
      place_[static_cast<size_t>(row)] = 0;
    }
    for (int32_t& place : place_) {
      if (place == 0) place = count_++;
    }
  }

  [[nodiscard]] int32_t count() const { return count_; }

  // Where the row is among those that are taken.
  [[nodiscard]] int32_t place(int32_t row) const { return place_[static_cast<size_t>(row)]; }

  // Calls each(place, row) for the rows that are taken, by index.
  template <class Each>
  void for_each(const Each& each) const {
    for (size_t row = 0; row < place_.size(); ++row) {
      if (place_[row] >= 0) each(place_[row], static_cast<int32_t>(row));
    }
  }

 private:
  std::vector<int32_t> place_;
  int32_t count_ = 0;
};

}  // namespace

Tensor rows_to_send(Tensor& counts, const SlotPlan& plan, std::span<const int64_t> first_expert) {
  std::vector<int32_t> sent;
  const std::span<const int32_t> sources = plan.source.span<int32_t>();
  auto* count = counts.data<int64_t>();
  for (size_t r = 0; r + 1 < first_expert.size(); ++r) {
    const int64_t first = plan.groups.begin(first_expert[r]);
    const int64_t slots = plan.groups.begin(first_expert[r + 1]) - first;
    const Taken taken(sources.subspan(static_cast<size_t>(first), static_cast<size_t>(slots)),
                      plan.rows);
    taken.for_each([&](int32_t /*place*/, int32_t row) { sent.push_back(row); });
    for (int64_t e = first_expert[r]; e < first_expert[r + 1]; ++e) *count++ = plan.groups.size(e);
    *count++ = taken.count();
    *count++ = plan.rows;
  }
  Tensor rows = plan.source.like({std::ssize(sent)}, DType::kI32, "rows_to_send");
  std::ranges::copy(sent, rows.data<int32_t>());
  return rows;
}

void arrived_slots(ArrivedSlots& slots, const Tensor& lists, const ArrivingSlots& coming) {
  const size_t ranks = coming.rows.size(), experts = coming.held.size() / ranks;
  const std::vector<int64_t> first_row = begins_of(coming.rows);
  const std::vector<int64_t> first_of = begins_of(coming.rows_of);
  const std::vector<int64_t> arrival = begins_of(coming.held);
  const auto* list = lists.data<int32_t>();
  std::vector<Taken> taken;
  for (size_t r = 0; r < ranks; ++r) {
    const int64_t begin = experts > 0 ? arrival[r * experts] : 0;
    const int64_t end = r + 1 < ranks && experts > 0 ? arrival[(r + 1) * experts] : lists.count();
    taken.emplace_back(std::span(list + begin, list + end), coming.rows_of[r]);
    AB_CHECK(taken[r].count() == coming.rows[r], "[arrived_slots] rank ", r, " sends ",
             coming.rows[r], " rows but its slots take ", taken[r].count());
    taken[r].for_each([&](int32_t place, int32_t row) {
      slots.group_row.data<int32_t>()[first_row[r] + place] =
          static_cast<int32_t>(first_of[r] + row);
    });
  }
  auto* source = slots.plan.source.data<int32_t>();
  auto* place = slots.place.data<int32_t>();
  for (size_t e = 0; e < experts; ++e) {
    for (size_t r = 0; r < ranks; ++r) {
      const size_t i = r * experts + e;
      for (int64_t at = arrival[i]; at < arrival[i] + coming.held[i]; ++at) {
        *place++ = static_cast<int32_t>(at);
        *source++ = static_cast<int32_t>(first_row[r] + taken[r].place(list[at]));
      }
    }
  }
  std::iota(slots.plan.gate.data<int32_t>(), slots.plan.gate.data<int32_t>() + lists.count(), 0);
}

}  // namespace anabranch::cpu
