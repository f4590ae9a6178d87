#include "core/ops/binary_cross_entropy.h"

#include "tests/support/op_checks.h"

namespace anabranch {
namespace {

// With membership where the logits are.
test::Op op(const Tensor& member) {
  return
      [member](const Var& v) { return binary_cross_entropy(v, member.copy_in(v.value().pool())); };
}

TEST(BinaryCrossEntropy, IsTheEquationByHand) {
  // Probabilities 3/4, 1/4, 1/2; and a logit whose exponential overflows.
  const Tensor z = Tensor::of<double>({2, 2}, {std::log(3.0), -std::log(3.0), 0, 1000});
  const Tensor member = Tensor::of<uint8_t>({2, 2}, {1, 1, 0, 0});
  const auto near = test::op_tolerance(DType::kF64);
  const double sum = -std::log(0.75) - std::log(0.25) + std::log(2.0) + 1000;
  for (const test::TestDevice& device : test::devices()) {
    const auto run = test::run_op(op(member), z, {}, Tensor::of<double>({1}, {8}), device);
    test::expect_near(run.y, {sum / 4}, near, "loss");
    test::expect_near(run.dx, {-0.5, -1.5, 1, 2}, near, "dlogits");
  }
}

TEST(BinaryCrossEntropy, DevicesAgree) {
  const Tensor z = test::random({901, 7}, 1, DType::kF32);
  Tensor member({901, 7}, DType::kU8);
  for (int64_t i = 0; i < z.count(); ++i) member.data<uint8_t>()[i] = i % 3 == 0 ? 1 : 0;
  const Tensor seed = test::full({1}, 901, DType::kF32);
  const auto want = test::run_op(op(member), z, {}, seed);
  for (const test::TestDevice& device : test::devices()) {
    const auto got = test::run_op(op(member), z, {}, seed, device);
    test::expect_near(got.y, test::values(want.y), test::op_tolerance(DType::kF32), "loss");
    test::expect_near(got.dx, test::values(want.dx), test::op_tolerance(DType::kF32), "dlogits");
  }
}

TEST(BinaryCrossEntropy, GradientsAddUp) {
  const Tensor member = Tensor::of<uint8_t>({3, 2}, {1, 0, 0, 1, 1, 0});
  test::expect_accumulates(op(member), test::random({3, 2}, 1), {});
}

TEST(BinaryCrossEntropy, RefusesWhatDoesNotFit) {
  const Tensor z = test::random({3, 2}, 1);
  EXPECT_THROW(binary_cross_entropy(z, Tensor::of<uint8_t>({2, 3}, {1, 0, 0, 1, 1, 0})), Error);
  EXPECT_THROW(binary_cross_entropy(z, z), Error);
}

}  // namespace
}  // namespace anabranch
