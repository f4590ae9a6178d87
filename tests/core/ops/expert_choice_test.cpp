#include "core/ops/expert_choice.h"

#include <numeric>

#include "tests/support/op_checks.h"

namespace anabranch {
namespace {

using Ints = std::vector<int32_t>;
using Counts = std::vector<int64_t>;

Ints ints(const Tensor& t) { return {t.data<int32_t>(), t.data<int32_t>() + t.count()}; }

const Tensor kScores = Tensor::of<float>({4, 2}, {0.9F, 0.1F, 0.2F, 0.8F, 0.7F, 0.3F, 0.4F, 0.6F});

TEST(ExpertChoice, TakesTheLargestScores) {
  const ExpertChoice choice = expert_choice(kScores, {1, 0, SlotOrder::kTime});
  EXPECT_EQ(choice.k, 2);
  EXPECT_EQ(choice.plan.rows, 4);
  EXPECT_EQ(choice.plan.groups.offsets, (Counts{0, 2, 4}));
  EXPECT_EQ(ints(choice.plan.source), (Ints{0, 2, 1, 3}));
  EXPECT_EQ(ints(choice.plan.gate), (Ints{0, 4, 3, 7}));
  EXPECT_EQ(test::values(choice.kth), (std::vector<double>{0.7F, 0.6F}));
}

TEST(ExpertChoice, PoolsCompeteApart) {
  const ExpertChoice choice = expert_choice(kScores, {1, 2, SlotOrder::kTime});
  EXPECT_EQ(choice.k, 1);
  EXPECT_EQ(ints(choice.plan.source), (Ints{0, 2, 1, 3}));
  EXPECT_EQ(test::values(choice.kth), (std::vector<double>{0.9F, 0.8F, 0.7F, 0.6F}));
}

TEST(ExpertChoice, AffinityIsByFallingScore) {
  const ExpertChoice choice = expert_choice(kScores, {1.5, 0, SlotOrder::kAffinity});
  EXPECT_EQ(ints(choice.plan.source), (Ints{0, 2, 3, 1, 3, 2}));
  EXPECT_EQ(ints(expert_choice(kScores, {1.5, 0, SlotOrder::kTime}).plan.source),
            (Ints{0, 2, 3, 1, 2, 3}));
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
  const auto taken = [&](double capacity) {
    const Ints narrow =
        ints(expert_choice(scores, {capacity, 0, SlotOrder::kAffinity}).plan.source);
    const Tensor wide = test::cast(scores, DType::kF64);
    EXPECT_EQ(ints(expert_choice(wide, {capacity, 0, SlotOrder::kAffinity}).plan.source), narrow);
    return narrow;
  };
  EXPECT_EQ(taken(1), (Ints{2, 5, 1, 3, 4, 0}));
  EXPECT_EQ(taken(0.5), (Ints{2, 5, 1}));
  EXPECT_EQ(taken(1.0 / 6), (Ints{2}));
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
  const SlotPlan plan = select_by_threshold(scores, Tensor::of<float>({2}, {0.7F, 0.7F}));
  EXPECT_EQ(plan.groups.offsets, (Counts{0, 2, 3}));
  EXPECT_EQ(ints(plan.source), (Ints{0, 2, 1}));
  EXPECT_EQ(ints(plan.gate), (Ints{0, 4, 3}));
  EXPECT_EQ(plan.rows, 4);
  // The k-th scores as thresholds choose the same rows again.
  const ExpertChoice choice = expert_choice(kScores, {1, 0, SlotOrder::kTime});
  EXPECT_EQ(ints(select_by_threshold(kScores, choice.kth).gate), ints(choice.plan.gate));
}

TEST(SelectByMask, TakesWhatIsMarked) {
  const SlotPlan plan = select_by_mask(Tensor::of<uint8_t>({3, 3}, {0, 0, 1, 0, 0, 0, 2, 0, 1}));
  EXPECT_EQ(plan.groups.offsets, (Counts{0, 1, 1, 3}));
  EXPECT_EQ(ints(plan.source), (Ints{2, 0, 2}));
  EXPECT_EQ(ints(plan.gate), (Ints{6, 2, 8}));
  EXPECT_EQ(select_by_mask(Tensor::of<uint8_t>({1, 2}, {0, 0})).groups.rows(), 0);
}

TEST(SlotsOf, ARanksRowsOfAChoice) {
  const SlotPlan all = select_by_mask(Tensor::of<uint8_t>({4, 2}, {1, 0, 1, 1, 0, 1, 1, 1}));
  const SlotPlan own = slots_of(all, 1, 2);
  EXPECT_EQ(own.rows, 2);
  EXPECT_EQ(own.groups.offsets, (Counts{0, 1, 3}));
  EXPECT_EQ(ints(own.source), (Ints{0, 0, 1}));
  EXPECT_EQ(ints(own.gate), (Ints{0, 1, 3}));
  EXPECT_THROW(slots_of(all, 3, 2), Error);
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
