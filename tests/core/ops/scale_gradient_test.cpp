#include "core/ops/scale_gradient.h"

#include "tests/support/op_checks.h"

namespace anabranch {
namespace {

Var quarter(const Var& x) { return scale_gradient(x, 0.25); }

TEST(ScaleGradient, LeavesTheValueAndScalesTheGradient) {
  const auto run =
      test::run_op(quarter, Tensor::of<double>({2}, {3, 5}), {}, Tensor::of<double>({2}, {8, -4}));
  EXPECT_EQ(test::values(run.y), (std::vector<double>{3, 5}));
  EXPECT_EQ(test::values(run.dx), (std::vector<double>{2, -1}));
}

TEST(ScaleGradient, Accumulates) { test::expect_accumulates(quarter, test::random({3, 5}, 1), {}); }

TEST(ScaleGradient, TypesAgree) {
  for (const int64_t rows : {0, 3, 8}) {
    test::expect_types_agree(quarter, test::random({rows, 5}, 1), {});
  }
}

}  // namespace
}  // namespace anabranch
