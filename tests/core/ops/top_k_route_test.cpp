#include "core/ops/top_k_route.h"

#include <limits>

#include "tests/support/op_checks.h"

namespace anabranch {
namespace {

std::vector<int32_t> ints(const Tensor& t) {
  return {t.data<int32_t>(), t.data<int32_t>() + t.count()};
}

using Ints = std::vector<int32_t>;
using Counts = std::vector<int64_t>;

const double kLog2 = std::log(2.0);

// Choices by falling logit: 1 0, 2 1, 1 2, 1 0.
Tensor logits() {
  return Tensor::of<double>({4, 3}, {0, kLog2, -9, -9, 0, kLog2, -9, kLog2, 0, 0, kLog2, -9});
}

TEST(TopKRoute, SortsSlotsByExpertThenRow) {
  const TopKRoute route = top_k_route(logits(), {});
  EXPECT_EQ(ints(route.expert), (Ints{1, 0, 2, 1, 1, 2, 1, 0}));
  EXPECT_EQ(route.plan.groups.offsets, (Counts{0, 2, 6, 8}));
  EXPECT_EQ(ints(route.plan.source), (Ints{0, 3, 0, 1, 2, 3, 1, 2}));
  EXPECT_EQ(ints(route.plan.gate), (Ints{1, 7, 0, 3, 4, 6, 2, 5}));
  EXPECT_EQ(ints(route.slot), (Ints{2, 0, 6, 3, 4, 7, 5, 1}));
  EXPECT_EQ(route.demand, (Counts{2, 4, 2}));
  EXPECT_EQ(route.plan.rows, 4);
  const double a = 2.0 / 3, b = 1.0 / 3;
  test::expect_near(route.gates.value(), {a, b, a, b, a, b, a, b}, test::op_tolerance(DType::kF64),
                    "gates");
  EXPECT_EQ(test::values(route.selected.value()),
            (std::vector<double>{0, 0, kLog2, 0, kLog2, kLog2, kLog2, 0}));
}

TEST(TopKRoute, CapacityServesFirstChoicesFirst) {
  const TopKRoute route = top_k_route(logits(), {2, GateForm::kSelectedSoftmax, 2, 0});
  // Expert 1 serves rows 0 and 2; row 3's first choice and row 1's second find it full.
  EXPECT_EQ(ints(route.slot), (Ints{2, 0, 4, -1, 3, 5, -1, 1}));
  EXPECT_EQ(route.demand, (Counts{2, 4, 2}));
  const double a = 2.0 / 3, b = 1.0 / 3;
  test::expect_near(route.gates.value(), {a, b, a, 0, a, b, 0, b}, test::op_tolerance(DType::kF64),
                    "gates");
  // With pools of two rows each pool has its own slots.
  const TopKRoute pooled = top_k_route(logits(), {2, GateForm::kSelectedSoftmax, 1, 2});
  EXPECT_EQ(ints(pooled.slot), (Ints{2, 0, 4, -1, 3, 5, -1, 1}));
  EXPECT_EQ(pooled.demand, (Counts{1, 2, 1, 1, 2, 1}));
}

// Rows whose pool is larger drop what they drop in it.
TEST(TopKRoute, APartOfAPoolKnowsItsPlace) {
  const TopKRule rule{2, GateForm::kSelectedSoftmax, 2, 0};
  const TopKRoute whole = top_k_route(logits(), rule);
  Counts first_counts;
  for (const int64_t part : {0, 1}) {
    TopKRule of_part = rule;
    of_part.before = [&](const Counts& counts) -> Counts {
      if (part == 0) {
        first_counts = counts;
        return {0, 0, 0, 0, 3, 1};  // all first choices: 1 2 1 1
      }
      return {first_counts[0], first_counts[1],     first_counts[2],
              first_counts[3], 3 + first_counts[4], 1 + first_counts[5]};
    };
    const TopKRoute got = top_k_route(logits().view(part * 6, {2, 3}), of_part);
    for (int64_t i = 0; i < 4; ++i) {
      EXPECT_EQ(ints(got.slot)[static_cast<size_t>(i)] < 0,
                ints(whole.slot)[static_cast<size_t>(part * 4 + i)] < 0)
          << "choice " << i << " of part " << part;
    }
  }
  EXPECT_EQ(first_counts, (Counts{0, 1, 1, 1, 1, 0}));
  EXPECT_THROW(top_k_route(logits(), {2, GateForm::kSelectedSoftmax, 2, 2,
                                      [](const Counts& counts) { return counts; }}),
               Error);
}

TEST(TopKRoute, ProbabilityIsOfAllExperts) {
  const Tensor s = Tensor::of<double>({1, 3}, {kLog2, 0, 0});
  const TopKRoute route = top_k_route(s, {1, GateForm::kProbability, 0, 0});
  test::expect_near(route.gates.value(), {0.5}, test::op_tolerance(DType::kF64), "gates");
}

TEST(TopKRoute, TiesGoToTheLowestIndexAndNanIsSmallest) {
  const float nan = std::nanf(""), infinity = std::numeric_limits<float>::infinity();
  const Tensor s =
      Tensor::of<float>({3, 4}, {1, 2, 2, 2, nan, -infinity, nan, -1, -0.0F, 0, nan, 0});
  const auto chosen = [&](int64_t k) {
    return ints(top_k_route(s, {k, GateForm::kSelectedSoftmax, 0, 0}).expert);
  };
  EXPECT_EQ(chosen(2), (Ints{1, 2, 3, 1, 0, 1}));
  EXPECT_EQ(chosen(4), (Ints{1, 2, 3, 0, 3, 1, 0, 2, 0, 1, 3, 2}));
}

// Logits apart by more than the steps of the differences.
Tensor apart(int64_t rows, int64_t experts, uint32_t seed) {
  Tensor s = test::random({rows, experts}, seed);
  for (int64_t i = 0; i < s.count(); ++i) {
    s.data<double>()[i] =
        0.01 * static_cast<double>(i % experts) + std::round(s.data<double>()[i] * 9) / 9;
  }
  return s;
}

TEST(TopKRoute, GradientsAreThoseOfDifferences) {
  for (const GateForm form : {GateForm::kSelectedSoftmax, GateForm::kProbability}) {
    for (const int64_t capacity : {0, 2}) {
      for (const int64_t k : {1, 2, 5}) {
        const TopKRule rule{k, form, capacity, 0};
        const Tensor s = apart(7, 5, 1);
        test::expect_gradients([&](const Var& v) { return top_k_route(v, rule).gates; }, s, {});
        test::expect_gradients([&](const Var& v) { return top_k_route(v, rule).selected; }, s, {});
      }
    }
  }
}

TEST(TopKRoute, BothOutputsAddUpAndAccumulate) {
  const Tensor s = apart(7, 5, 1);
  const auto gates = [](const Var& v) { return top_k_route(v, {}).gates; };
  const auto selected = [](const Var& v) { return top_k_route(v, {}).selected; };
  test::expect_accumulates(gates, s, {});
  test::expect_accumulates(selected, s, {});
  Tape tape;
  const Var leaf = tape.input(s);
  const TopKRoute route = top_k_route(leaf, {});
  tape.give(route.selected, test::random({14}, 99));
  tape.backward(route.gates, test::random({7, 2}, 99));
  std::vector<double> want = test::values(test::run_op(gates, s, {}).dx);
  const std::vector<double> other = test::values(test::run_op(selected, s, {}).dx);
  for (size_t i = 0; i < want.size(); ++i) want[i] += other[i];
  test::expect_near(tape.take_grad(leaf), want, test::op_tolerance(DType::kF64), "dlogits");
}

TEST(TopKRoute, FloatIsNearDouble) {
  const Tensor s = apart(301, 17, 1);
  const auto run = [&](DType type) {
    return test::run_op([](const Var& v) { return top_k_route(v, {}).gates; }, test::cast(s, type),
                        {}, test::cast(test::random({301, 2}, 9, DType::kBF16), type));
  };
  const test::OpRun got = run(DType::kF32), want = run(DType::kF64);
  test::expect_near(got.y, test::values(want.y), test::op_tolerance(DType::kF32), "gates");
  test::expect_near(got.dx, test::values(want.dx), test::op_tolerance(DType::kF32), "dlogits");
}

TEST(TopKRoute, ThreadsAgree) {
  const Tensor s = test::random({701, 17}, 1, DType::kF32);
  test::expect_threads_agree([](const Var& v) { return top_k_route(v, {}).gates; }, s, {});
}

TEST(TopKRoute, OneExpertAndNoRows) {
  const TopKRoute one = top_k_route(test::random({3, 1}, 1), {1, GateForm::kSelectedSoftmax, 0, 0});
  EXPECT_EQ(test::values(one.gates.value()), (std::vector<double>{1, 1, 1}));
  EXPECT_EQ(one.plan.groups.offsets, (Counts{0, 3}));
  const TopKRoute none = top_k_route(Tensor({0, 4}, DType::kF32), {});
  EXPECT_EQ(none.plan.groups.offsets, (Counts{0, 0, 0, 0, 0}));
}

TEST(TopKRoute, RefusesWhatDoesNotFit) {
  const Tensor s = test::random({4, 3}, 1);
  EXPECT_THROW(top_k_route(s, {4}), Error);
  EXPECT_THROW(top_k_route(s, {0}), Error);
  EXPECT_THROW(top_k_route(s, {2, GateForm::kProbability, 1, 3}), Error);
  EXPECT_THROW(top_k_route(test::random({4, 3}, 1, DType::kBF16), {2}), Error);
}

}  // namespace
}  // namespace anabranch
