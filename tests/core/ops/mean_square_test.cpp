#include "core/ops/mean_square.h"

#include "core/autograd/attach_loss.h"
#include "core/ops/scale_gradient.h"
#include "tests/support/op_checks.h"

namespace anabranch {
namespace {

TEST(MeanSquare, IsTheMeanAndItsGradientAccumulates) {
  Param w = test::param("w", Tensor::of<double>({2, 2}, {1, -2, 3, 0}));
  for (const double times : {1.0, 2.0}) {  // the second adds to the first
    Tape tape;
    const Var y = mean_square(&tape, w);
    EXPECT_DOUBLE_EQ(*y.value().data<double>(), 3.5);
    tape.backward(y);
    test::expect_near(w.grad, {0.5 * times, -1 * times, 1.5 * times, 0}, test::kExact, "dw");
  }
  EXPECT_EQ(mean_square(nullptr, w).tape(), nullptr);
}

TEST(MeanSquare, RefusesRoundedParameters) {
  Param w = test::param("w", test::random({3}, 1, DType::kBF16));
  EXPECT_THROW(mean_square(nullptr, w), Error);
}

TEST(ScaleGradient, LeavesTheValueAndScalesTheRest) {
  for (const DType type : {DType::kF64, DType::kF32, DType::kBF16}) {
    const test::OpRun run =
        test::run_op([](const Var& x) { return scale_gradient(x, 0.25); },
                     test::full({3, 5}, 2, type), {}, test::full({3, 5}, 4, type));
    test::expect_near(run.y, std::vector<double>(15, 2), test::kExact, "y");
    test::expect_near(run.dx, std::vector<double>(15, 1), test::kExact, "dx");
  }
}

}  // namespace
}  // namespace anabranch
