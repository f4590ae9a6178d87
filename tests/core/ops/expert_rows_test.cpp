#include "core/ops/expert_rows.h"

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "tests/support/op_checks.h"
#include "tests/support/plans.h"

namespace anabranch {
namespace {

using test::devices;
using test::ints;
using test::TestDevice;
using Ints = std::vector<int32_t>;

// What is laid out, in the host's memory.
struct Case {
  Tensor mask;    // [M, E]: who holds what
  Tensor scores;  // [M, E]
  RowLayout layout;
  std::vector<int64_t> windows;
  Tensor numbers;

  [[nodiscard]] int64_t rows() const { return mask.dim(0); }

  [[nodiscard]] int64_t experts() const { return mask.dim(1); }

  [[nodiscard]] int64_t number(int64_t row) const {
    return numbers.empty() ? row : numbers.data<int32_t>()[row];
  }

  [[nodiscard]] double score(int64_t row, int64_t e) const {
    return test::values(scores)[static_cast<size_t>(row * experts() + e)];
  }
};

// One expert's, from the definition.
struct Want {
  Ints source, gate, positions, first_key, last_key;
};

Want by_definition(const Case& c, int64_t e) {
  std::vector<int64_t> rows;
  for (int64_t m = 0; m < c.rows(); ++m) {
    if (c.mask.data<uint8_t>()[m * c.experts() + e] != 0) rows.push_back(m);
  }
  const auto segment = [&](int64_t row) { return c.number(row) / c.layout.segment_rows; };
  if (c.layout.order == SlotOrder::kAffinity) {
    std::ranges::stable_sort(rows, [&](int64_t a, int64_t b) {
      return segment(a) != segment(b) ? segment(a) < segment(b) : c.score(a, e) > c.score(b, e);
    });
  }
  const auto S = std::ssize(rows);
  const auto row = [&](int64_t i) { return rows[static_cast<size_t>(i)]; };
  const auto rank = [&](int64_t i) {
    return std::count_if(rows.begin(), rows.begin() + i,
                         [&](int64_t other) { return segment(other) == segment(row(i)); });
  };
  const auto place = [&](int64_t i, SlotPosition position) {
    return position == SlotPosition::kCompact ? rank(i) : c.number(row(i)) % c.layout.segment_rows;
  };
  const int64_t window = c.windows[static_cast<size_t>(e)];
  const auto near = [&](int64_t i, int64_t j) {
    const SlotPosition by = c.layout.window_position;
    return segment(row(i)) == segment(row(j)) &&
           (window == 0 || std::abs(place(i, by) - place(j, by)) < window);
  };
  Want want;
  for (int64_t i = 0; i < S; ++i) {
    want.source.push_back(static_cast<int32_t>(row(i)));
    want.gate.push_back(static_cast<int32_t>(row(i) * c.experts() + e));
    want.positions.push_back(static_cast<int32_t>(place(i, c.layout.rope_position)));
    int64_t first = i, last = i;
    while (first > 0 && near(i, first - 1)) --first;
    while (last + 1 < S && near(i, last + 1)) ++last;
    want.first_key.push_back(static_cast<int32_t>(first));
    want.last_key.push_back(static_cast<int32_t>(last));
  }
  return want;
}

// `got` is `want`, and behind it are unused rows.
void expect_rows(const Tensor& got, const Ints& want, bool alone, const std::string& what) {
  const Ints all = ints(got);
  ASSERT_GE(all.size(), want.size()) << what;
  for (size_t i = 0; i < all.size(); ++i) {
    const int32_t unused = alone ? static_cast<int32_t>(i) : what == "positions" ? 0 : -1;
    EXPECT_EQ(all[i], i < want.size() ? want[i] : unused) << what << " " << i;
  }
}

void check(const Case& c, const TestDevice& device) {
  const SlotPlan plan = select_by_mask(device.place(c.mask));
  const ExpertRows rows = expert_rows(plan, c.layout, c.windows, device.place(c.scores),
                                      c.numbers.empty() ? Tensor() : device.place(c.numbers));
  EXPECT_EQ(rows.plan.rows, c.rows());
  const Ints gates = ints(plan.gate), slots = ints(rows.slots), gates_of = ints(rows.plan.gate);
  for (size_t i = 0; i < slots.size(); ++i) {
    EXPECT_EQ(gates_of[i], slots[i] < 0 ? -1 : gates[static_cast<size_t>(slots[i])]);
  }
  for (int64_t e = 0; e < c.experts(); ++e) {
    const Want want = by_definition(c, e);
    const RowsOfExpert of = rows.of(e);
    const int64_t S = rows.plan.groups.size(e);
    EXPECT_EQ(S, device.pool ? c.rows() : std::ssize(want.source));
    expect_rows(of.source, want.source, false, "source");
    expect_rows(rows.plan.gate.view(rows.plan.groups.begin(e), {S}), want.gate, false, "gate");
    expect_rows(of.positions, want.positions, false, "positions");
    EXPECT_EQ(of.first_key.shape(), (Shape{1, S}));
    expect_rows(of.first_key, want.first_key, true, "first_key");
    EXPECT_EQ(of.last_key.empty(), !c.layout.both_ways);
    if (c.layout.both_ways) expect_rows(of.last_key, want.last_key, true, "last_key");
  }
}

// Coarse scores, so that many are equal; expert 1 has no rows.
Case random_case(int64_t rows, DType type) {
  Case c;
  c.mask = Tensor({rows, 3}, DType::kU8);
  Tensor scores = test::random({rows, 3}, 5);
  for (int64_t i = 0; i < c.mask.count(); ++i) {
    c.mask.data<uint8_t>()[i] = i % 3 != 1 && philox(7, static_cast<uint64_t>(i))[0] % 3 != 0;
    scores.data<double>()[i] = std::round(8 * scores.data<double>()[i]) / 8;
  }
  c.scores = test::cast(scores, type);
  c.windows = {5, 2, 40};
  return c;
}

TEST(ExpertRows, AreAsTheDefinitionSays) {
  for (const TestDevice& device : devices()) {
    for (const auto& [rows, segment] : {std::tuple<int64_t, int64_t>{67, 67}, {600, 200}, {0, 4}}) {
      for (const auto& [order, window] : {std::tuple{SlotOrder::kTime, SlotPosition::kOriginal},
                                          {SlotOrder::kTime, SlotPosition::kCompact},
                                          {SlotOrder::kAffinity, SlotPosition::kCompact}}) {
        for (const bool both_ways : {false, true}) {
          const DType type = both_ways ? DType::kF64 : DType::kF32;
          Case c = random_case(rows, type);
          const auto rope = both_ways ? SlotPosition::kCompact : SlotPosition::kOriginal;
          c.layout = {segment, order, rope, window, both_ways};
          check(c, device);
        }
      }
    }
  }
}

TEST(ExpertRows, WithoutWindowsSegmentsAreWhole) {
  for (const TestDevice& device : devices()) {
    for (const SlotOrder order : {SlotOrder::kTime, SlotOrder::kAffinity}) {
      Case c = random_case(90, DType::kF32);
      c.windows = {0, 0, 0};
      c.layout = {30, order, SlotPosition::kOriginal, SlotPosition::kOriginal, true};
      check(c, device);
    }
  }
}

// Rows of a batch of which others are elsewhere.
TEST(ExpertRows, StandWhereTheirNumbersSay) {
  for (const TestDevice& device : devices()) {
    Case c = random_case(120, DType::kF32);
    c.layout = {50, SlotOrder::kTime, SlotPosition::kOriginal, SlotPosition::kOriginal, true};
    c.numbers = Tensor({120}, DType::kI32);
    for (int32_t m = 0; m < 120; ++m) c.numbers.data<int32_t>()[m] = 2 * m + m / 7;
    check(c, device);
  }
}

// As many rows as the host knows that there are.
TEST(ExpertRows, OfAKnownChoiceAreExact) {
  const Tensor scores = test::random({24, 3}, 1, DType::kF32);
  const std::vector<int64_t> windows{3, 4, 5};
  const RowLayout layout{8, SlotOrder::kTime, SlotPosition::kOriginal, SlotPosition::kOriginal};
  const SlotPlan plan = expert_choice(scores, {1, 8, SlotOrder::kTime}).plan;
  const ExpertRows want = expert_rows(plan, layout, windows, scores);
  for (const TestDevice& device : devices()) {
    const SlotPlan there = test::place(device, plan);
    const ExpertRows got = expert_rows(there, layout, windows, {});
    EXPECT_EQ(got.plan.groups.offsets, plan.groups.offsets);
    EXPECT_EQ(ints(got.plan.source), ints(plan.source));
    EXPECT_EQ(ints(got.first_key), ints(want.first_key));
    EXPECT_EQ(ints(got.positions), ints(want.positions));
  }
}

TEST(ExpertRows, RefusesWhatDoesNotFit) {
  const Case c = random_case(6, DType::kF32);
  const SlotPlan plan = select_by_mask(c.mask);
  const RowLayout layout{6};
  EXPECT_THROW(expert_rows(plan, layout, {}, c.scores), Error);
  EXPECT_THROW(expert_rows(plan, {}, c.windows, c.scores), Error);
  EXPECT_THROW(expert_rows(plan, layout, c.windows, c.scores, Tensor({5}, DType::kI32)), Error);
  EXPECT_THROW(expert_rows(plan, {6, SlotOrder::kAffinity}, c.windows, c.scores), Error);
}

}  // namespace
}  // namespace anabranch
