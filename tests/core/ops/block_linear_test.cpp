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

test::OpRun run(DType type, int64_t rows, int64_t D, const test::TestDevice& device) {
  const auto rounded = [&](Shape shape, uint32_t seed) {
    return test::cast(test::random(shape, seed, DType::kBF16), type);
  };
  Param w = test::param("w", rounded({3, D, D}, 1));
  Param b = test::param("b", test::cast(rounded({3 * D}, 2), accumulator_of(type)));
  return test::run_op([&](const Var& x) { return block_linear(x, w, b); },
                      rounded({rows, 3 * D}, 3), {&w, &b}, rounded({rows, 3 * D}, 4), device);
}

TEST(BlockLinear, LowerPrecisionIsNearFloat64) {
  for (const test::TestDevice& device : test::devices()) {
    for (const auto& [rows, D] : {std::pair(19, 5), {40, 16}, {0, 16}}) {
      const test::OpRun want = run(DType::kF64, rows, D, {"cpu", nullptr});
      for (const DType type : {DType::kF32, DType::kBF16}) {
        const test::OpRun got = run(type, rows, D, device);
        const test::Tolerance near = test::op_tolerance(type);
        const test::Tolerance sums{near.relative, near.absolute * 7};  // sqrt of 40 roundings
        test::expect_near(got.y, test::values(want.y), near, device.name + " y");
        test::expect_near(got.dx, test::values(want.dx), near, device.name + " dx");
        test::expect_near(got.dparams[0], test::values(want.dparams[0]), sums, "dw");
        test::expect_near(got.dparams[1], test::values(want.dparams[1]), sums, "db");
      }
    }
  }
}

TEST(BlockLinear, RefusesWhatDoesNotFit) {
  Param w = test::param("w", test::random({3, 5, 5}, 1)),
        b = test::param("b", test::random({15}, 2));
  EXPECT_THROW(block_linear(test::random({4, 14}, 3), w, b), Error);
}

}  // namespace
}  // namespace anabranch
