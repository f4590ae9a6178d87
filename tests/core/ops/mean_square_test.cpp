#include "core/ops/mean_square.h"

#include "core/autograd/attach_loss.h"
#include "core/ops/scale_gradient.h"
#include "tests/support/op_checks.h"

namespace anabranch {
namespace {

TEST(MeanSquare, IsTheMeanAndItsGradientAccumulates) {
  for (const test::TestDevice& device : test::devices()) {
    Param w = test::param("w", Tensor::of<double>({2, 2}, {1, -2, 3, 0}));
    const std::vector<Param*> params{&w};
    const test::ParamsOn there(device, params);
    for (const double times : {1.0, 2.0}) {  // the second adds to the first
      Tape tape;
      const Var y = mean_square(&tape, w);
      EXPECT_EQ(test::values(y.value()), std::vector<double>{3.5});
      tape.backward(y);
      test::expect_near(w.grad, {0.5 * times, -1 * times, 1.5 * times, 0}, test::kExact, "dw");
    }
    EXPECT_EQ(mean_square(nullptr, w).tape(), nullptr);
  }
}

TEST(MeanSquare, OfManyInFloat) {
  const Tensor value = test::random({20001}, 1, DType::kF32);
  double sum = 0;
  for (const double v : test::values(value)) sum += v * v;
  for (const test::TestDevice& device : test::devices()) {
    Param w = test::param("w", value);
    const std::vector<Param*> params{&w};
    const test::ParamsOn there(device, params);
    Tape tape;
    const Var y = mean_square(&tape, w);
    const auto tolerance = test::op_tolerance(DType::kF32);
    test::expect_near(y.value(), {sum / 20001}, tolerance, device.name);
    tape.backward(y, device.place(Tensor::of<float>({1}, {20001 / 2.0F})));
    test::expect_near(w.grad, test::values(value), tolerance, device.name);
  }
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
