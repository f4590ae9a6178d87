#include "core/ops/block_linear.h"

#include "tests/support/op_checks.h"

namespace anabranch {
namespace {

TEST(BlockLinear, IsTheEquationByHand) {
  Param w = test::param("w", Tensor::of<double>({2, 1, 1}, {2, 3}));
  Param b = test::param("b", Tensor::of<double>({2}, {10, 20}));
  const Var y = block_linear(Tensor::of<double>({1, 2}, {5, 7}), w, b);
  EXPECT_EQ(test::values(y.value()), (std::vector<double>{20, 41}));
}

TEST(BlockLinear, GradientsAreThoseOfDifferences) {
  Param w = test::param("w", test::random({3, 5, 5}, 1)),
        b = test::param("b", test::random({15}, 2));
  const auto op = [&](const Var& x) { return block_linear(x, w, b); };
  test::expect_gradients(op, test::random({4, 15}, 3), {&w, &b});
  test::expect_accumulates(op, test::random({4, 15}, 3), {&w, &b});
}

TEST(BlockLinear, RefusesWhatDoesNotFit) {
  Param w = test::param("w", test::random({3, 5, 5}, 1)),
        b = test::param("b", test::random({15}, 2));
  EXPECT_THROW(block_linear(test::random({4, 14}, 3), w, b), Error);
}

}  // namespace
}  // namespace anabranch
