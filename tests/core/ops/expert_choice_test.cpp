#include "core/ops/expert_choice.h"

#include <limits>
#include <numeric>
#include <tuple>

#include "tests/support/op_checks.h"
#include "tests/support/plans.h"

namespace anabranch {
namespace {

using test::devices;
using test::ints;
using test::offsets;
using test::TestDevice;
using test::used;
using Ints = std::vector<int32_t>;
using Counts = std::vector<int64_t>;

const Tensor kScores = Tensor::of<float>({4, 2}, {0.9F, 0.1F, 0.2F, 0.8F, 0.7F, 0.3F, 0.4F, 0.6F});

TEST(ExpertChoice, TakesTheLargestScores) {
  for (const TestDevice& device : devices()) {
    const ExpertChoice choice = expert_choice(device.place(kScores), {1, 0, SlotOrder::kTime});
    EXPECT_EQ(choice.k, 2);
    EXPECT_EQ(choice.plan.rows, 4);
    EXPECT_EQ(choice.plan.groups.offsets, (Counts{0, 2, 4}));
    EXPECT_EQ(ints(choice.plan.source), (Ints{0, 2, 1, 3}));
    EXPECT_EQ(ints(choice.plan.gate), (Ints{0, 4, 3, 7}));
    EXPECT_EQ(test::values(choice.kth), (std::vector<double>{0.7F, 0.6F}));
  }
}

TEST(ExpertChoice, PoolsCompeteApart) {
  for (const TestDevice& device : devices()) {
    const ExpertChoice choice = expert_choice(device.place(kScores), {1, 2, SlotOrder::kTime});
    EXPECT_EQ(choice.k, 1);
    EXPECT_EQ(ints(choice.plan.source), (Ints{0, 2, 1, 3}));
    EXPECT_EQ(test::values(choice.kth), (std::vector<double>{0.9F, 0.8F, 0.7F, 0.6F}));
  }
}

TEST(ExpertChoice, AffinityIsByFallingScore) {
  for (const TestDevice& device : devices()) {
    const auto taken = [&](SlotOrder order) {
      return ints(expert_choice(device.place(kScores), {1.5, 0, order}).plan.source);
    };
    EXPECT_EQ(taken(SlotOrder::kAffinity), (Ints{0, 2, 3, 1, 3, 2}));
    EXPECT_EQ(taken(SlotOrder::kTime), (Ints{0, 2, 3, 1, 2, 3}));
  }
}

TEST(ExpertChoice, TheShareIsRoundedHalfUp) {
  EXPECT_EQ(rows_per_expert(2, 8192, 4), 4096);
  EXPECT_EQ(rows_per_expert(1, 6, 4), 2);
  EXPECT_EQ(rows_per_expert(1, 10, 4), 3);
  EXPECT_EQ(rows_per_expert(0.01, 10, 4), 1);
  EXPECT_EQ(rows_per_expert(9, 10, 4), 10);
}

TEST(ExpertChoice, TiesGoToTheEarlierRowAndNanIsLast) {
  const float nan = std::nanf("");
  const Tensor scores = Tensor::of<float>({6, 1}, {nan, -0.0F, 1, 0, -1, 1});
  for (const TestDevice& device : devices()) {
    const auto taken = [&](double capacity) {
      const ExpertChoiceRule rule{capacity, 0, SlotOrder::kAffinity};
      const Ints narrow = ints(expert_choice(device.place(scores), rule).plan.source);
      const Tensor wide = device.place(test::cast(scores, DType::kF64));
      EXPECT_EQ(ints(expert_choice(wide, rule).plan.source), narrow);
      return narrow;
    };
    EXPECT_EQ(taken(1), (Ints{2, 5, 1, 3, 4, 0}));
    EXPECT_EQ(taken(0.5), (Ints{2, 5, 1}));
    EXPECT_EQ(taken(1.0 / 6), (Ints{2}));
  }
}

// Few distinct scores, against a stable sort.
TEST(ExpertChoice, HeavyTiesAreASortsFirst) {
  constexpr int64_t kRows = 999, kExperts = 3;
  for (const DType type : {DType::kF32, DType::kF64}) {
    Tensor coarse = test::random({kRows, kExperts}, 5);
    for (double& v : coarse.span<double>()) v = std::round(2 * v);
    const ExpertChoice choice = expert_choice(test::cast(coarse, type), {1, 333, {}});
    EXPECT_EQ(choice.k, 111);
    for (int64_t e = 0; e < kExperts; ++e) {
      Ints want;
      for (int64_t pool = 0; pool < 3; ++pool) {
        Ints rows(333);
        std::iota(rows.begin(), rows.end(), static_cast<int32_t>(pool * 333));
        const auto score = [&](int32_t m) { return coarse.data<double>()[m * kExperts + e]; };
        std::stable_sort(rows.begin(), rows.end(),
                         [&](int32_t a, int32_t b) { return score(a) > score(b); });
        EXPECT_EQ(test::values(choice.kth)[static_cast<size_t>(pool * kExperts + e)],
                  score(rows[110]));
        std::sort(rows.begin(), rows.begin() + 111);
        want.insert(want.end(), rows.begin(), rows.begin() + 111);
      }
      const Ints all = ints(choice.plan.source);
      EXPECT_EQ(Ints(all.begin() + e * 333, all.begin() + (e + 1) * 333), want);
    }
  }
}

// All as on the CPU, ties, zeros of both signs, infinities and NaN included.
TEST(ExpertChoice, DevicesAgree) {
  for (const TestDevice& device : devices()) {
    for (const DType type : {DType::kF32, DType::kF64}) {
      for (const auto& [rows, experts, pool] :
           {std::tuple<int64_t, int64_t, int64_t>{1500, 3, 0}, {900, 40, 300}, {64, 2, 1}}) {
        Tensor scores = test::random({rows, experts}, 5);
        for (double& v : scores.span<double>()) {
          if (std::abs(v) < 0.4) v = std::round(9 * v) / 9;
          if (v > 0.97) v = std::nan("");
          if (v < -0.97) v = std::numeric_limits<double>::infinity();
        }
        const Tensor s = test::cast(scores, type);
        for (const SlotOrder order : {SlotOrder::kTime, SlotOrder::kAffinity}) {
          for (const double capacity : {0.001, 1.0, 0.9 * static_cast<double>(experts)}) {
            const ExpertChoiceRule rule{capacity, pool, order};
            const ExpertChoice want = expert_choice(s, rule);
            const ExpertChoice got = expert_choice(device.place(s), rule);
            EXPECT_EQ(ints(got.plan.source), ints(want.plan.source)) << rows << " " << capacity;
            EXPECT_EQ(ints(got.plan.gate), ints(want.plan.gate));
            EXPECT_TRUE(test::same_bytes(got.kth, want.kth));
            EXPECT_EQ(got.plan.groups.offsets, want.plan.groups.offsets);
          }
        }
      }
    }
  }
}

TEST(ExpertChoice, DoesNotDependOnTheNumberOfThreads) {
  const int before = thread_count();
  const Tensor scores = test::random({700, 5}, 1, DType::kF32);
  set_thread_count(1);
  const Ints want = ints(expert_choice(scores, {2, 100, SlotOrder::kTime}).plan.gate);
  set_thread_count(3);
  EXPECT_EQ(ints(expert_choice(scores, {2, 100, SlotOrder::kTime}).plan.gate), want);
  set_thread_count(before);
}

TEST(SelectByThreshold, TakesFromTheThresholdOn) {
  Tensor scores = kScores.clone();
  scores.data<float>()[2] = std::nanf("");
  for (const TestDevice& device : devices()) {
    const SlotPlan plan = select_by_threshold(device.place(scores),
                                              device.place(Tensor::of<float>({2}, {0.7F, 0.7F})));
    EXPECT_EQ(offsets(plan.groups), (Counts{0, 2, 3}));
    EXPECT_EQ(used(plan, plan.source), (Ints{0, 2, 1}));
    EXPECT_EQ(used(plan, plan.gate), (Ints{0, 4, 3}));
    EXPECT_EQ(plan.rows, 4);
    // The k-th scores as thresholds choose the same rows again.
    const Tensor there = device.place(kScores);
    const ExpertChoice choice = expert_choice(there, {1, 0, SlotOrder::kTime});
    const SlotPlan again = select_by_threshold(there, choice.kth);
    EXPECT_EQ(used(again, again.gate), ints(choice.plan.gate));
  }
}

TEST(SelectByMask, TakesWhatIsMarked) {
  for (const TestDevice& device : devices()) {
    const auto select = [&](Shape shape, const std::vector<uint8_t>& mask) {
      return select_by_mask(device.place(Tensor::of<uint8_t>(shape, mask)));
    };
    const SlotPlan plan = select({3, 3}, {0, 0, 1, 0, 0, 0, 2, 0, 1});
    EXPECT_EQ(offsets(plan.groups), (Counts{0, 1, 1, 3}));
    EXPECT_EQ(used(plan, plan.source), (Ints{2, 0, 2}));
    EXPECT_EQ(used(plan, plan.gate), (Ints{6, 2, 8}));
    EXPECT_EQ(offsets(select({1, 2}, {0, 0}).groups).back(), 0);
    EXPECT_EQ(offsets(select({0, 2}, {}).groups), (Counts{0, 0, 0}));
  }
}

TEST(SelectPositive, TakesWhatIsAboveZero) {
  const Tensor logits =
      Tensor::of<float>({4, 2}, {0.5F, -1, 0, std::nanf(""), -0.0F, 1e-40F, HUGE_VALF, 2});
  for (const TestDevice& device : devices()) {
    for (const DType type : {DType::kF32, DType::kF64}) {
      const SlotPlan plan = select_positive(device.place(test::cast(logits, type)));
      EXPECT_EQ(offsets(plan.groups), (Counts{0, 2, 4}));
      EXPECT_EQ(used(plan, plan.gate), (Ints{0, 6, 5, 7}));
    }
  }
}

TEST(Membership, MarksWhoHoldsWhat) {
  const std::vector<uint8_t> marks{1, 0, 1, 1, 0, 1, 0, 0};
  for (const TestDevice& device : devices()) {
    const SlotPlan plan = select_by_mask(device.place(Tensor::of<uint8_t>({4, 2}, marks)));
    EXPECT_EQ(test::elements<uint8_t>(membership(plan)), marks);
  }
}

TEST(SlotsOf, ARanksRowsOfAChoice) {
  for (const TestDevice& device : devices()) {
    const SlotPlan all =
        select_by_mask(device.place(Tensor::of<uint8_t>({4, 2}, {1, 0, 1, 1, 0, 1, 1, 1})));
    const SlotPlan own = slots_of(all, 1, 2);
    EXPECT_EQ(own.rows, 2);
    EXPECT_EQ(offsets(own.groups), (Counts{0, 1, 3}));
    EXPECT_EQ(used(own, own.source), (Ints{0, 0, 1}));
    EXPECT_EQ(used(own, own.gate), (Ints{0, 1, 3}));
    EXPECT_THROW(slots_of(all, 3, 2), Error);
  }
}

TEST(ExpertChoice, RefusesWhatDoesNotFit) {
  EXPECT_THROW(expert_choice(kScores, {1, 3, SlotOrder::kTime}), Error);
  EXPECT_THROW(expert_choice(kScores, {0, 0, SlotOrder::kTime}), Error);
  EXPECT_THROW(expert_choice(test::random({4}, 1), {}), Error);
  EXPECT_THROW(expert_choice(test::random({4, 2}, 1, DType::kBF16), {}), Error);
  EXPECT_THROW(select_by_threshold(kScores, test::random({2}, 1)), Error);
  EXPECT_THROW(select_by_mask(kScores), Error);
}

}  // namespace
}  // namespace anabranch
