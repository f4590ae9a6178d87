#include "core/ops/altup_correct.h"

#include "core/ops/add.h"
#include "tests/support/op_checks.h"

namespace anabranch {
namespace {

TEST(AltupCorrect, IsTheEquationByHand) {
  Param g = test::param("g", Tensor::of<double>({2}, {1, 0.5}));
  const std::vector<Var> predicted{Tensor::of<double>({1}, {2}), Tensor::of<double>({1}, {10})};
  const std::vector<Var> x = altup_correct(predicted, Tensor::of<double>({1}, {14}), 1, g);
  EXPECT_EQ(test::values(x[0].value()), (std::vector<double>{6}));
  EXPECT_EQ(test::values(x[1].value()), (std::vector<double>{12}));
}

TEST(AltupCorrect, GradientsAreThoseOfDifferences) {
  Param g = test::param("g", test::random({2}, 1));
  for (const int64_t active : {0, 1}) {
    const auto op = [&](size_t only) {
      return [&g, active, only](const std::vector<Var>& x) {
        const std::vector<Var> predicted{x[0], x[1]};
        const std::vector<Var> y = altup_correct(predicted, x[2], active, g);
        return only < 2 ? y[only] : y[0] + y[1];
      };
    };
    const std::vector<Tensor> xs{test::random({3, 5}, 2), test::random({3, 5}, 3),
                                 test::random({3, 5}, 4)};
    test::expect_gradients(op(2), xs, {&g});
    if (active == 0) test::expect_gradients(op(1), xs, {&g});  // an output that nothing uses
  }
}

TEST(AltupCorrect, OfOneTensorThreeTimes) {
  Param g = test::param("g", test::random({2}, 1));
  const auto op = [&](const Var& x) {
    const std::vector<Var> predicted{x, x};
    const std::vector<Var> y = altup_correct(predicted, x, 0, g);
    return y[0] + y[1];
  };
  test::expect_gradients(op, test::random({3, 5}, 2), {&g});
  test::expect_accumulates(op, test::random({3, 5}, 2), {&g});
}

TEST(AltupCorrect, RefusesWhatDoesNotFit) {
  Param g = test::param("g", test::random({2}, 1));
  const std::vector<Var> predicted{test::random({4}, 1), test::random({4}, 2)};
  EXPECT_THROW(altup_correct(predicted, test::random({4}, 3), 2, g), Error);
  EXPECT_THROW(altup_correct(predicted, test::random({5}, 3), 0, g), Error);
}

}  // namespace
}  // namespace anabranch
