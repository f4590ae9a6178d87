#include "core/ops/gelu.h"

#include <numbers>

#include "core/ops/add.h"
#include "tests/support/op_checks.h"

namespace anabranch {
namespace {

class Gelu : public testing::TestWithParam<GeluForm> {
 protected:
  [[nodiscard]] test::Op op() const {
    return [form = GetParam()](const Var& x) { return gelu(x, form); };
  }
};

TEST(GeluForms, AreTheEquations) {
  const std::vector<double> xs{-7, -1.5, -0.1, 0, 0.3, 1, 6};
  const Tensor x = Tensor::of<double>({7}, xs);
  std::vector<double> tanh_form, erf_form;
  for (const double v : xs) {
    const double u = std::sqrt(2 / std::numbers::pi) * (v + 0.044715 * v * v * v);
    tanh_form.push_back(v * (1 + std::tanh(u)) / 2);
    erf_form.push_back(v * (1 + std::erf(v / std::sqrt(2.0))) / 2);
  }
  const auto tolerance = test::op_tolerance(DType::kF64);
  test::expect_near(gelu(x, GeluForm::kTanh).value(), tanh_form, tolerance, "tanh form");
  test::expect_near(gelu(x, GeluForm::kErf).value(), erf_form, tolerance, "erf form");
}

// T2 of cMoLLM's checks: GELU is a mask of its input times it, a soft one, and 0 at 0; so a mixture
// of kernels is linear in them where the mask is kept.
TEST(GeluForms, AreMasksOfTheirInput) {
  const std::vector<double> zs{-3, -0.5, 0.25, 2};
  const std::vector<double> probabilities{0.0013498980316300933, 0.3085375387259869,
                                          0.5987063256829237, 0.9772498680518208};  // below z
  const Tensor z = Tensor::of<double>({4}, zs);
  const auto erf_form = test::values(gelu(z, GeluForm::kErf).value());
  const auto tanh_form = test::values(gelu(z, GeluForm::kTanh).value());
  for (size_t i = 0; i < zs.size(); ++i) {
    EXPECT_NEAR(erf_form[i] / zs[i], probabilities[i], 1e-12);
    const double u = std::sqrt(2 / std::numbers::pi) * (zs[i] + 0.044715 * std::pow(zs[i], 3));
    EXPECT_NEAR(tanh_form[i] / zs[i], 1 / (1 + std::exp(-2 * u)), 1e-12);  // (1 + tanh u) / 2
  }
  for (const GeluForm form : {GeluForm::kErf, GeluForm::kTanh}) {
    EXPECT_EQ(test::values(gelu(Tensor::of<double>({1}, {0}), form).value()).front(), 0);
  }
}

TEST_P(Gelu, GradientsAreThoseOfDifferences) {
  Tensor x = test::random({3, 37}, 1);
  for (double& v : x.span<double>()) v *= 4;
  test::expect_gradients(op(), x, {});
}

TEST_P(Gelu, TypesAgree) { test::expect_types_agree(op(), test::random({3, 337}, 1), {}); }

TEST_P(Gelu, Accumulates) { test::expect_accumulates(op(), test::random({3, 37}, 1), {}); }

TEST_P(Gelu, ThreadsAgree) {
  test::expect_threads_agree(op(), test::random({200, 401}, 1, DType::kF32), {});
}

// The gradient that `x + y` hands to both must not be written over.
TEST_P(Gelu, LeavesASharedGradientAlone) {
  test::expect_gradients([&](const Var& x) { return op()(x) + op()(op()(x)) + x; },
                         test::random({2, 5}, 1), {});
}

TEST_P(Gelu, LargeInputsSaturate) {
  const Tensor x = Tensor::of<float>({4}, {-1e4F, -30, 30, 1e4F});
  const auto run = test::run_op(op(), x, {}, test::full({4}, 1, DType::kF32));
  test::expect_near(run.y, {0, 0, 30, 1e4}, test::op_tolerance(DType::kF32), "y");
  test::expect_near(run.dx, {0, 0, 1, 1}, test::op_tolerance(DType::kF32), "dx");
}

INSTANTIATE_TEST_SUITE_P(Forms, Gelu, testing::Values(GeluForm::kTanh, GeluForm::kErf));

}  // namespace
}  // namespace anabranch
