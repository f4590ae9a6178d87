#include "core/ops/binary_cross_entropy.h"

#include "tests/support/op_checks.h"

namespace anabranch {
namespace {

TEST(BinaryCrossEntropy, IsTheEquationByHand) {
  // Probabilities 3/4, 1/4, 1/2; and a logit whose exponential overflows.
  const Tensor z = Tensor::of<double>({2, 2}, {std::log(3.0), -std::log(3.0), 0, 1000});
  const Tensor member = Tensor::of<uint8_t>({2, 2}, {1, 1, 0, 0});
  const auto op = [&](const Var& v) { return binary_cross_entropy(v, member); };
  const auto run = test::run_op(op, z, {}, Tensor::of<double>({1}, {8}));
  const auto near = test::op_tolerance(DType::kF64);
  const double sum = -std::log(0.75) - std::log(0.25) + std::log(2.0) + 1000;
  test::expect_near(run.y, {sum / 4}, near, "loss");
  test::expect_near(run.dx, {-0.5, -1.5, 1, 2}, near, "dlogits");
}

TEST(BinaryCrossEntropy, GradientsAddUp) {
  const Tensor member = Tensor::of<uint8_t>({3, 2}, {1, 0, 0, 1, 1, 0});
  test::expect_accumulates([&](const Var& v) { return binary_cross_entropy(v, member); },
                           test::random({3, 2}, 1), {});
}

TEST(BinaryCrossEntropy, RefusesWhatDoesNotFit) {
  const Tensor z = test::random({3, 2}, 1);
  EXPECT_THROW(binary_cross_entropy(z, Tensor::of<uint8_t>({2, 3}, {1, 0, 0, 1, 1, 0})), Error);
  EXPECT_THROW(binary_cross_entropy(z, z), Error);
}

}  // namespace
}  // namespace anabranch
