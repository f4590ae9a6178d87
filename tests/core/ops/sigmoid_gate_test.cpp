#include "core/ops/sigmoid_gate.h"

#include "tests/support/op_checks.h"

namespace anabranch {
namespace {

TEST(SigmoidGate, IsTheEquationByHand) {
  const Tensor b = Tensor::of<double>({2}, {std::log(3.0), 0});
  Tape tape;
  const Var a = tape.input(Tensor::of<double>({2}, {8, -2})), gate = tape.input(b);
  const Var y = sigmoid_gate(a, gate);
  const auto tolerance = test::op_tolerance(DType::kF64);
  test::expect_near(y.value(), {6, -1}, tolerance, "y");
  tape.backward(y, Tensor::of<double>({2}, {1, 4}));
  test::expect_near(tape.take_grad(a), {0.75, 2}, tolerance, "da");
  test::expect_near(tape.take_grad(gate), {1.5, -2}, tolerance, "db");
}

TEST(SigmoidGate, GradientsAreThoseOfDifferences) {
  test::expect_gradients([](const std::vector<Var>& x) { return sigmoid_gate(x[0], x[1]); },
                         {test::random({3, 17}, 1), test::random({3, 17}, 2)}, {});
}

Var of_itself(const Var& x) { return sigmoid_gate(x, x); }

TEST(SigmoidGate, TypesAgree) {
  test::expect_types_agree(of_itself, test::random({5, 133}, 1), {});
}

TEST(SigmoidGate, Accumulates) {
  test::expect_accumulates(of_itself, test::random({3, 17}, 1), {});
}

TEST(SigmoidGate, RefusesOtherShapes) {
  EXPECT_THROW(sigmoid_gate(test::random({2, 3}, 1), test::random({3, 2}, 1)), Error);
}

}  // namespace
}  // namespace anabranch
