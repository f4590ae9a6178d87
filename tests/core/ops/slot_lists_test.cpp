#include "core/ops/slot_lists.h"

#include <numeric>
#include <set>

#include "core/ops/expert_choice.h"
#include "tests/support/op_checks.h"

namespace anabranch {
namespace {

// Which of M rows each of E experts takes, by chance.
Tensor random_mask(int64_t rows, int64_t experts, double share, uint32_t seed) {
  Tensor mask({rows, experts}, DType::kU8);
  for (int64_t i = 0; i < mask.count(); ++i) {
    const bool takes = uniform_float(philox(seed, static_cast<uint64_t>(i))[0]) < share;
    mask.data<uint8_t>()[i] = takes ? 1 : 0;
  }
  return mask;
}

std::vector<int32_t> ints(const Tensor& some) {
  const Tensor t = some.on_host();
  return {t.span<int32_t>().begin(), t.span<int32_t>().end()};
}

struct Sent {
  std::vector<int32_t> rows;
  std::vector<int64_t> counts;
};

// What the op says, without what is unused.
Sent sent_of(const Tensor& mask, const std::vector<int64_t>& first, const test::TestDevice& on) {
  const SlotPlan plan = select_by_mask(on.place(mask));
  const int64_t ranks = std::ssize(first) - 1;
  const Tensor counts({first.back() + kCountsBesideExperts * ranks}, DType::kI64, on.pool);
  Sent sent{ints(rows_to_send(counts, plan, first)), {}};
  const Tensor here = counts.on_host();
  sent.counts.assign(here.span<int64_t>().begin(), here.span<int64_t>().end());
  int64_t rows = 0;
  for (int64_t r = 0; r < ranks; ++r) {
    rows += sent.counts[static_cast<size_t>(first[static_cast<size_t>(r) + 1] + 2 * r)];
  }
  EXPECT_LE(rows, std::ssize(sent.rows));
  sent.rows.resize(static_cast<size_t>(rows));
  return sent;
}

// By definition.
Sent want_of(const Tensor& mask, const std::vector<int64_t>& first) {
  const int64_t rows = mask.dim(0), E = mask.dim(1);
  Sent want;
  for (size_t r = 0; r + 1 < first.size(); ++r) {
    std::set<int32_t> taken;
    for (int64_t e = first[r]; e < first[r + 1]; ++e) {
      int64_t slots = 0;
      for (int64_t m = 0; m < rows; ++m) {
        if (mask.data<uint8_t>()[m * E + e] == 0) continue;
        taken.insert(static_cast<int32_t>(m));
        ++slots;
      }
      want.counts.push_back(slots);
    }
    want.rows.insert(want.rows.end(), taken.begin(), taken.end());
    want.counts.push_back(std::ssize(taken));
    want.counts.push_back(rows);
  }
  return want;
}

TEST(RowsToSend, AreThoseOfTheDefinition) {
  struct Case {
    int64_t rows;
    double share;
    std::vector<int64_t> first;
  };

  const Case cases[] = {{60, 0.3, {0, 2, 4, 5}},   {2000, 0.2, {0, 3, 6}}, {600, 0.9, {0, 1, 2, 3}},
                        {40, 0, {0, 2, 3}},        {50, 1, {0, 2, 2, 4}},  {0, 0.5, {0, 2, 3}},
                        {1, 0.6, {0, 1, 2, 3, 9}}, {300, 0.4, {0, 5}}};
  for (const Case& c : cases) {
    const Tensor mask = random_mask(c.rows, c.first.back(), c.share, 1);
    const Sent want = want_of(mask, c.first);
    for (const test::TestDevice& on : test::devices()) {
      const Sent got = sent_of(mask, c.first, on);
      EXPECT_EQ(got.rows, want.rows) << on.name << " " << c.rows;
      EXPECT_EQ(got.counts, want.counts) << on.name << " " << c.rows;
    }
  }
}

// Groups that the host knows, of a GPU's plan.
TEST(RowsToSend, TakesGroupsOfTheHost) {
  for (const test::TestDevice& on : test::devices()) {
    const SlotPlan plan{6,
                        {{0, 2, 2, 5}},
                        on.place(Tensor::of<int32_t>({5}, {5, 0, 3, 1, 3})),
                        on.place(Tensor::of<int32_t>({5}, {0, 1, 2, 3, 4}))};
    const Tensor counts({7}, DType::kI64, on.pool);
    const Tensor rows = rows_to_send(counts, plan, std::vector<int64_t>{0, 1, 3});
    const Tensor here = counts.on_host();
    EXPECT_EQ(std::vector<int64_t>(here.span<int64_t>().begin(), here.span<int64_t>().end()),
              (std::vector<int64_t>{2, 2, 6, 0, 3, 2, 6}));
    EXPECT_EQ(ints(rows.view(0, {4})), (std::vector<int32_t>{0, 5, 1, 3})) << on.name;
  }
}

TEST(RowsToSend, RefusesWhatDoesNotFit) {
  const SlotPlan plan{
      3, {{0, 1, 2}}, Tensor::of<int32_t>({2}, {0, 3}), Tensor::of<int32_t>({2}, {0, 1})};
  const std::vector<int64_t> two{0, 1, 2};
  EXPECT_THROW(rows_to_send(Tensor({6}, DType::kI64), plan, two), Error);  // there is no row 3
  EXPECT_THROW(rows_to_send(Tensor({5}, DType::kI64), plan, two), Error);
  EXPECT_THROW(rows_to_send(Tensor({6}, DType::kI64), plan, std::vector<int64_t>{0, 1, 3}), Error);
}

// Lists of ranks with other numbers of rows, one without any.
struct Lists {
  ArrivingSlots coming;
  std::vector<int32_t> rows;
};

Lists random_lists(const std::vector<int64_t>& rows_of, int64_t experts, double share) {
  Lists lists;
  for (size_t r = 0; r < rows_of.size(); ++r) {
    const Tensor mask = random_mask(rows_of[r], experts, share, static_cast<uint32_t>(r) + 7);
    std::set<int64_t> taken;
    for (int64_t e = 0; e < experts; ++e) {
      int64_t slots = 0;
      for (int64_t m = 0; m < rows_of[r]; ++m) {
        if (mask.data<uint8_t>()[m * experts + e] == 0) continue;
        lists.rows.push_back(static_cast<int32_t>(m));
        taken.insert(m);
        ++slots;
      }
      lists.coming.held.push_back(slots);
    }
    lists.coming.rows.push_back(std::ssize(taken));
  }
  lists.coming.rows_of = rows_of;
  return lists;
}

TEST(ArrivedSlots, AreByExpertThenByRankThenAsSent) {
  for (const auto& [rows_of, experts, share] :
       {std::tuple<std::vector<int64_t>, int64_t, double>{{7, 0, 5}, 3, 0.4},
        {{900, 300}, 2, 0.3},
        {{4, 4, 4, 4}, 1, 1},
        {{30, 20}, 5, 0.04},
        {{3, 3}, 2, 0}}) {
    const Lists lists = random_lists(rows_of, experts, share);
    const Tensor host = Tensor::of<int32_t>({std::ssize(lists.rows)}, lists.rows);
    const int64_t ranks = std::ssize(rows_of);
    const std::vector<int64_t> arrival = begins_of(lists.coming.held), first = begins_of(rows_of);
    for (const test::TestDevice& on : test::devices()) {
      const ArrivedSlots got = arrived_slots(on.place(host), lists.coming);
      const std::vector<int32_t> place = ints(got.place), source = ints(got.plan.source),
                                 group_row = ints(got.group_row), gate = ints(got.plan.gate);
      EXPECT_TRUE(std::is_sorted(group_row.begin(), group_row.end())) << on.name;
      EXPECT_EQ(std::set(group_row.begin(), group_row.end()).size(), group_row.size());
      size_t s = 0;
      for (int64_t e = 0; e < experts; ++e) {
        EXPECT_EQ(got.plan.groups.begin(e), static_cast<int64_t>(s));
        for (int64_t r = 0; r < ranks; ++r) {
          const auto i = static_cast<size_t>(r * experts + e);
          for (int64_t n = 0; n < lists.coming.held[i]; ++n, ++s) {
            ASSERT_EQ(place[s], arrival[i] + n) << on.name;
            ASSERT_EQ(gate[s], static_cast<int32_t>(s));
            ASSERT_EQ(group_row[static_cast<size_t>(source[s])],
                      first[static_cast<size_t>(r)] + lists.rows[static_cast<size_t>(place[s])])
                << on.name;
          }
        }
      }
      EXPECT_EQ(s, place.size());
      EXPECT_EQ(got.plan.groups.rows(), static_cast<int64_t>(s));
    }
  }
}

TEST(ArrivedSlots, RefusesWhatDoesNotFit) {
  Lists lists = random_lists({5, 5}, 2, 0.5);
  const Tensor rows = Tensor::of<int32_t>({std::ssize(lists.rows)}, lists.rows);
  EXPECT_THROW(arrived_slots(rows.view(0, {rows.count() - 1}), lists.coming), Error);
  ++lists.coming.rows[0];
  EXPECT_THROW(arrived_slots(rows, lists.coming), Error);
  --lists.coming.rows[0];
  lists.coming.rows_of[1] = 1;
  EXPECT_THROW(arrived_slots(rows, lists.coming), Error);
}

}  // namespace
}  // namespace anabranch
