#include "core/ops/altup_correct.h"

#include "core/ops/add.h"
#include "tests/support/device_checks.h"

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

// Of K predicted blocks and a computed one: the sum of the corrected, but for `unused`.
test::OpOfMany corrected(Param& g, int64_t active, size_t unused) {
  return [&g, active, unused](const std::vector<Var>& x) {
    const std::vector<Var> predicted(x.begin(), x.end() - 1);
    const std::vector<Var> y = altup_correct(predicted, x.back(), active, g);
    Var sum = y[unused == 0 ? 1 : 0];
    for (size_t i = unused == 0 ? 2 : 1; i < y.size(); ++i) {
      if (i != unused) sum = sum + y[i];
    }
    return sum;
  };
}

TEST(AltupCorrect, DevicesAgree) {
  for (const DType type : test::kFloating) {
    for (const int64_t n : {37, 5000}) {
      for (const int64_t blocks : {2, 3, 13}) {
        Param g = test::param("g", test::random({blocks}, 1, accumulator_of(type)));
        std::vector<Tensor> xs;
        for (uint32_t i = 0; i <= blocks; ++i) xs.push_back(test::random({3, n}, 2 + i, type));
        for (const size_t unused : {size_t{0}, size_t{1}, xs.size()}) {
          test::expect_devices_agree(corrected(g, 1, unused), xs, {&g}, type);
        }
      }
    }
  }
}

TEST(AltupCorrect, RefusesWhatDoesNotFit) {
  Param g = test::param("g", test::random({2}, 1));
  const std::vector<Var> predicted{test::random({4}, 1), test::random({4}, 2)};
  EXPECT_THROW(altup_correct(predicted, test::random({4}, 3), 2, g), Error);
  EXPECT_THROW(altup_correct(predicted, test::random({5}, 3), 0, g), Error);
}

}  // namespace
}  // namespace anabranch
