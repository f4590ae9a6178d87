#include "core/ops/adaptive_gate.h"

#include "core/ops/sigmoid_gate.h"
#include "tests/support/device_checks.h"

namespace anabranch {
namespace {

// A constant in the memory that x is in.
Var beside(const Var& x, const Tensor& t) { return t.copy_in(x.value().pool()); }

TEST(AdaptiveGate, IsTheEquationByHand) {
  // sens = 1.5, bias = 0.6, mag = 0.5 and v so that the sigmoid is 3/4.
  const double ln3 = std::log(3.0);
  const Tensor r = Tensor::of<double>({1, 3}, {ln3, std::atanh(0.6), -ln3});
  const Tensor v = Tensor::of<double>({1, 1}, {(ln3 - 0.6) / 1.5});
  const Tensor y = adaptive_gate(Tensor::of<double>({1, 1}, {8}), v, r).value();
  test::expect_near(y, {8 * 0.5 * 0.75}, test::op_tolerance(DType::kF64), "y");
}

TEST(AdaptiveGate, WithoutScalesIsTheSigmoidGate) {
  const Tensor f = test::random({3, 9}, 1), v = test::random({3, 9}, 2);
  test::expect_near(adaptive_gate(f, v, test::full({3, 3}, 0)).value(),
                    test::values(sigmoid_gate(f, v).value()), test::op_tolerance(DType::kF64), "y");
}

TEST(AdaptiveGate, GradientsAreThoseOfDifferences) {
  test::expect_gradients(
      [](const std::vector<Var>& x) { return adaptive_gate(x[0], x[1], x[2]); },
      {test::random({4, 9}, 1), test::random({4, 9}, 2), test::random({4, 3}, 3)}, {});
}

TEST(AdaptiveGate, Accumulates) {
  const Tensor r = test::random({4, 3}, 3);
  test::expect_accumulates([&](const Var& x) { return adaptive_gate(x, x, beside(x, r)); },
                           test::random({4, 9}, 1), {});
}

TEST(AdaptiveGate, TypesAgree) {
  const Tensor r = test::random({5, 3}, 3, DType::kF32);  // of such values in every run
  test::expect_types_agree(
      [&](const Var& x) {
        return adaptive_gate(x, x, beside(x, test::cast(r, accumulator_of(x.dtype()))));
      },
      test::random({5, 133}, 1), {});
}

TEST(AdaptiveGate, DevicesAgree) {
  const auto op = [](const std::vector<Var>& x) { return adaptive_gate(x[0], x[1], x[2]); };
  for (const DType type : test::kFloating) {
    for (const int64_t n : {133, 304}) {
      test::expect_devices_agree(op,
                                 {test::random({9, n}, 1, type), test::random({9, n}, 2, type),
                                  test::random({9, 3}, 3, accumulator_of(type))},
                                 {}, type);
    }
  }
}

TEST(AdaptiveGate, RefusesWhatDoesNotFit) {
  const Tensor f = test::random({2, 3}, 1);
  EXPECT_THROW(adaptive_gate(f, f, test::random({2, 2}, 1)), Error);
  EXPECT_THROW(adaptive_gate(f, test::random({3, 2}, 1), test::random({2, 3}, 1)), Error);
}

}  // namespace
}  // namespace anabranch
