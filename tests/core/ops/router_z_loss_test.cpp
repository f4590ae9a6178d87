#include "core/ops/router_z_loss.h"

#include "tests/support/op_checks.h"

namespace anabranch {
namespace {

constexpr ZLossForm kForms[] = {ZLossForm::kPlain, ZLossForm::kDemeaned};

test::Op op(ZLossForm form) {
  return [form](const Var& v) { return router_z_loss(v, form); };
}

TEST(RouterZLoss, IsTheEquationByHand) {
  const double a = std::log(3.0);
  // lse = log 4; probabilities 3/4, 1/4; mean a / 2.
  const Tensor s = Tensor::of<double>({1, 2}, {a, 0}), seed = Tensor::of<double>({1}, {5});
  const double lse = std::log(4.0), l = lse - a / 2;
  const auto near = test::op_tolerance(DType::kF64);
  for (const test::TestDevice& device : test::devices()) {
    const auto plain = test::run_op(op(ZLossForm::kPlain), s, {}, seed, device);
    test::expect_near(plain.y, {lse * lse}, near, "plain");
    test::expect_near(plain.dx, {5 * 2 * lse * 0.75, 5 * 2 * lse * 0.25}, near, "plain");
    const auto demeaned = test::run_op(op(ZLossForm::kDemeaned), s, {}, seed, device);
    test::expect_near(demeaned.y, {l * l + a * a / 4}, near, "demeaned");
    test::expect_near(demeaned.dx, {5 * (l / 2 + a / 2), 5 * (-l / 2 + a / 2)}, near, "demeaned");
  }
}

TEST(RouterZLoss, GradientsAreThoseOfDifferences) {
  for (const ZLossForm form : kForms) {
    test::expect_gradients(op(form), test::random({7, 5}, 1), {});
  }
}

TEST(RouterZLoss, Accumulates) {
  for (const ZLossForm form : kForms) {
    test::expect_accumulates(op(form), test::random({7, 5}, 1), {});
  }
}

TEST(RouterZLoss, FloatIsNearDouble) {
  for (const int64_t experts : {17, 40, 3}) {
    const Tensor s = test::random({777, experts}, 1, DType::kF32);
    for (const ZLossForm form : kForms) {
      const auto want =
          test::run_op(op(form), test::cast(s, DType::kF64), {}, test::full({1}, 777));
      for (const test::TestDevice& device : test::devices()) {
        const auto got = test::run_op(op(form), s, {}, test::full({1}, 777, DType::kF32), device);
        test::expect_near(got.y, test::values(want.y), test::op_tolerance(DType::kF32), "loss");
        test::expect_near(got.dx, test::values(want.dx), test::op_tolerance(DType::kF32), "dx");
      }
    }
  }
}

TEST(RouterZLoss, ThreadsAgree) {
  test::expect_threads_agree(op(ZLossForm::kDemeaned), test::random({777, 17}, 1, DType::kF32), {});
}

TEST(RouterZLoss, LargeLogitsDoNotOverflow) {
  const Tensor s = Tensor::of<float>({1, 2}, {1000, 1000});
  const float lse = 1000 + std::log(2.0F);
  for (const test::TestDevice& device : test::devices()) {
    test::expect_near(router_z_loss(device.place(s)).value(), {lse * lse},
                      test::op_tolerance(DType::kF32), "loss");
  }
}

TEST(RouterZLoss, RefusesWhatDoesNotFit) {
  EXPECT_THROW(router_z_loss(Tensor({0, 2}, DType::kF32)), Error);
  EXPECT_THROW(router_z_loss(test::random({2, 2}, 1, DType::kBF16)), Error);
}

}  // namespace
}  // namespace anabranch
