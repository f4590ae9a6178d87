#include "core/ops/swiglu.h"

#include "tests/support/op_checks.h"

namespace anabranch {
namespace {

Var op(const Var& x) { return swiglu(x); }

TEST(Swiglu, IsTheEquationByHand) {
  // Gate ln 3: s = 3/4.
  const double gate = std::log(3.0);
  const Tensor x = Tensor::of<double>({1, 4}, {gate, 0, 2, 5});
  const auto run = test::run_op(op, x, {}, Tensor::of<double>({1, 2}, {1, 1}));
  const auto tolerance = test::op_tolerance(DType::kF64);
  test::expect_near(run.y, {1.5 * gate, 0}, tolerance, "y");
  test::expect_near(run.dx, {1.5 * (1 + gate / 4), 2.5, 0.75 * gate, 0}, tolerance, "dx");
}

TEST(Swiglu, GradientsAreThoseOfDifferences) {
  test::expect_gradients(op, test::random({3, 34}, 1), {});
}

TEST(Swiglu, TypesAgree) {
  for (const int64_t width : {266, 272, 2}) {
    test::expect_types_agree(op, test::random({5, width}, 1), {});
  }
  test::expect_types_agree(op, Tensor({0, 16}, DType::kF64), {});
}

TEST(Swiglu, Accumulates) { test::expect_accumulates(op, test::random({3, 34}, 1), {}); }

TEST(Swiglu, ThreadsAgree) {
  test::expect_threads_agree(op, test::random({301, 266}, 1, DType::kF32), {});
}

TEST(Swiglu, RefusesAnOddWidth) { EXPECT_THROW(swiglu(test::random({2, 3}, 1)), Error); }

}  // namespace
}  // namespace anabranch
