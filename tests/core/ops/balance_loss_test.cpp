#include "core/ops/balance_loss.h"

#include "core/autograd/attach_loss.h"
#include "tests/support/op_checks.h"

namespace anabranch {
namespace {

using Counts = std::vector<int64_t>;

const double kLog3 = std::log(3.0);

// Of counts that are put beside the logits.
Var loss_of(const Var& logits, const Counts& counts, const BalanceRule& rule = {}) {
  const Tensor there =
      Tensor::of<int64_t>({std::ssize(counts)}, counts).copy_in(logits.value().pool());
  return balance_loss(logits, there, rule);
}

TEST(BalanceLoss, IsTheEquationByHand) {
  // Probabilities (3/4, 1/4) and (1/2, 1/2): P = (5/8, 3/8).
  const Tensor s = Tensor::of<double>({2, 2}, {kLog3, 0, 7, 7});
  const auto op = [](const Var& v) { return loss_of(v, {2, 0}); };
  const auto near = test::op_tolerance(DType::kF64);
  for (const test::TestDevice& device : test::devices()) {
    const auto run = test::run_op(op, s, {}, Tensor::of<double>({1}, {8}), device);
    test::expect_near(run.y, {2 * (1 * 5.0 / 8)}, near, "loss");
    // 8 (E / T) p (f - <p, f>) with f = (1, 0).
    test::expect_near(run.dx, {8 * 0.75 * 0.25, -8 * 0.25 * 0.75, 2, -2}, near, "dlogits");
  }
}

TEST(BalanceLoss, CountsOfManyPools) {
  constexpr int64_t kPools = 67;
  const Tensor s = test::random({2 * kPools, 5}, 1, DType::kF32);
  Counts counts;
  for (int64_t i = 0; i < 5 * kPools; ++i) counts.push_back(i % 7);
  const auto op = [&](const Var& v) { return loss_of(v, counts, {2, 3}); };
  const auto want = test::run_op(op, s, {}, test::full({1}, 99, DType::kF32));
  for (const test::TestDevice& device : test::devices()) {
    const auto got = test::run_op(op, s, {}, test::full({1}, 99, DType::kF32), device);
    test::expect_near(got.y, test::values(want.y), test::op_tolerance(DType::kF32), "loss");
    test::expect_near(got.dx, test::values(want.dx), test::op_tolerance(DType::kF32), "dlogits");
    EXPECT_THROW(loss_of(device.place(s), counts, {1, 3}), Error);
    if (!device.pool) continue;
    EXPECT_THROW(balance_loss(device.place(s), Tensor::of<int64_t>({5 * kPools}, counts), {2, 3}),
                 Error);
  }
}

TEST(BalanceLoss, BalanceGivesTheSumOfShares) {
  const Tensor even = test::full({6, 3}, 0.5);
  const auto near = test::op_tolerance(DType::kF64);
  test::expect_near(loss_of(even, {4, 4, 4}).value(), {2}, near, "count / T");
  test::expect_near(loss_of(even, {4, 4, 4}, {0, 2}).value(), {1}, near, "count / (T k)");
}

TEST(BalanceLoss, PoolsAreAveraged) {
  const Tensor s = test::random({6, 3}, 1);
  const Counts counts{4, 1, 1, 0, 2, 4};
  const double first =
      test::values(loss_of(s.view(0, {3, 3}), {counts.begin(), counts.begin() + 3}).value())[0];
  const double second =
      test::values(loss_of(s.view(9, {3, 3}), {counts.begin() + 3, counts.end()}).value())[0];
  test::expect_near(loss_of(s, counts, {3, 1}).value(), {(first + second) / 2},
                    test::op_tolerance(DType::kF64), "loss");
}

TEST(BalanceLoss, GradientsAreThoseOfDifferences) {
  const auto op = [](const Var& v) { return loss_of(v, {5, 1, 3, 0, 2, 4, 4, 2, 1, 0}, {7, 2}); };
  test::expect_gradients(op, test::random({14, 5}, 1), {});
}

TEST(BalanceLoss, AccumulatesAndIsAttached) {
  const auto op = [](const Var& v) { return loss_of(v, {5, 1, 3, 0, 2}); };
  const Tensor s = test::random({7, 5}, 1);
  test::expect_accumulates(op, s, {});
  const auto attached = [&](const Var& v) { return attach_loss(v, op(v), 0.25F); };
  const auto got = test::run_op(attached, s, {}, test::full({7, 5}, 0));
  test::expect_near(got.dx, test::values(test::run_op(op, s, {}, test::full({1}, 0.25)).dx),
                    test::op_tolerance(DType::kF64), "dlogits");
}

TEST(BalanceLoss, FloatIsNearDouble) {
  const Tensor s = test::random({777, 17}, 1, DType::kF32);
  const Counts counts(17, 777 / 17);
  const auto op = [&](const Var& v) { return loss_of(v, counts); };
  const auto want = test::run_op(op, test::cast(s, DType::kF64), {}, test::full({1}, 777));
  for (const test::TestDevice& device : test::devices()) {
    const auto got = test::run_op(op, s, {}, test::full({1}, 777, DType::kF32), device);
    test::expect_near(got.y, test::values(want.y), test::op_tolerance(DType::kF32), "loss");
    test::expect_near(got.dx, test::values(want.dx), test::op_tolerance(DType::kF32), "dlogits");
  }
}

TEST(BalanceLoss, ThreadsAgree) {
  const Counts counts(17, 40);
  const auto op = [&](const Var& v) { return loss_of(v, counts); };
  test::expect_threads_agree(op, test::random({777, 17}, 1, DType::kF32), {});
}

// The mean over the ranks of a pool is the loss of the pool, and so is its gradient.
TEST(BalanceLoss, APoolOnTwoRanks) {
  const Tensor s = test::random({6, 3}, 1);
  const Counts counts{5, 3, 4};
  const auto whole = test::run_op(
      [&](const Var& v) {
        return loss_of(v, counts, {0, 2});
      },
      s, {}, test::full({1}, 1));
  double loss = 0;
  for (const int64_t rank : {0, 1}) {
    const auto part = test::run_op(
        [&](const Var& v) {
          return loss_of(v, counts, {3, 2, 2});
        },
        s.view(rank * 9, {3, 3}).clone(), {}, test::full({1}, 0.5));
    loss += test::values(part.y)[0] / 2;
    test::expect_near(part.dx, test::values(whole.dx.view(rank * 9, {3, 3})),
                      test::op_tolerance(DType::kF64), "dlogits");
  }
  EXPECT_NEAR(loss, test::values(whole.y)[0], 1e-12);
}

TEST(BalanceLoss, OneExpertHasNoGradient) {
  const auto op = [](const Var& v) { return loss_of(v, {3}); };
  const auto run = test::run_op(op, test::random({3, 1}, 1), {});
  EXPECT_EQ(test::values(run.y), std::vector<double>{1});
  EXPECT_EQ(test::values(run.dx), (std::vector<double>{0, 0, 0}));
}

TEST(BalanceLoss, RefusesWhatDoesNotFit) {
  const Tensor s = test::random({4, 2}, 1);
  EXPECT_THROW(loss_of(s, {1, 2, 3}), Error);
  EXPECT_THROW(loss_of(s, {1, 2}, {3, 1}), Error);
  EXPECT_THROW(loss_of(s, {1, 2}, {0, 0}), Error);
  EXPECT_THROW(loss_of(Tensor({0, 2}, DType::kF32), {1, 2}), Error);
  EXPECT_THROW(balance_loss(s, Tensor::of<int32_t>({2}, {1, 2})), Error);
}

}  // namespace
}  // namespace anabranch
