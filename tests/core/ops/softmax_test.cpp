#include "core/ops/softmax.h"

#include "tests/support/op_checks.h"

namespace anabranch {
namespace {

Var op(const Var& x) { return softmax(x); }

TEST(Softmax, IsTheEquationByHand) {
  const Tensor x = Tensor::of<double>({2, 2}, {std::log(3.0), 0, 1000, 1000});
  const auto run = test::run_op(op, x, {}, Tensor::of<double>({2, 2}, {1, 0, 2, 0}));
  const auto tolerance = test::op_tolerance(DType::kF64);
  test::expect_near(run.y, {0.75, 0.25, 0.5, 0.5}, tolerance, "p");
  test::expect_near(run.dx, {0.1875, -0.1875, 0.5, -0.5}, tolerance, "dlogits");
}

TEST(Softmax, GradientsAreThoseOfDifferences) {
  test::expect_gradients(op, test::random({5, 3}, 1), {});
}

TEST(Softmax, Accumulates) { test::expect_accumulates(op, test::random({5, 3}, 1), {}); }

TEST(Softmax, DevicesAgree) {
  for (const test::TestDevice& device : test::devices()) {
    for (const DType type : {DType::kF32, DType::kF64}) {
      for (const int64_t width : {1, 3, 8, 33, 100}) {
        for (const int64_t rows : {0, 1, 77}) {
          const Tensor x = test::random({rows, width}, 1, type);
          const test::OpRun got = test::run_op(op, x, {}, {}, device),
                            want = test::run_op(op, x, {});
          test::expect_near(got.y, test::values(want.y), test::op_tolerance(type), device.name);
          test::expect_near(got.dx, test::values(want.dx), test::op_tolerance(type), device.name);
        }
      }
    }
    const Tensor large = device.place(Tensor::of<float>({1, 3}, {1000, -1000, 1000}));
    test::expect_near(softmax(large).value(), {0.5, 0, 0.5}, test::op_tolerance(DType::kF32), "p");
  }
}

TEST(Softmax, ThreadsAgree) {
  test::expect_threads_agree(op, test::random({1301, 5}, 1, DType::kF32), {});
}

TEST(Softmax, RefusesBf16) { EXPECT_THROW(softmax(test::random({2, 3}, 1, DType::kBF16)), Error); }

}  // namespace
}  // namespace anabranch
