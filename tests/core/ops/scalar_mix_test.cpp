#include "core/ops/scalar_mix.h"

#include <algorithm>

#include "core/ops/add.h"
#include "tests/support/op_checks.h"

namespace anabranch {
namespace {

TEST(ScalarMix, IsTheEquationByHand) {
  Param p = test::param("p", Tensor::of<double>({2, 2}, {1, 10, 0, -1}));
  const std::vector<Var> xs{Tensor::of<double>({2}, {1, 2}), Tensor::of<double>({2}, {3, 4})};
  const std::vector<Var> ys = scalar_mix(xs, p);
  EXPECT_EQ(test::values(ys[0].value()), (std::vector<double>{31, 42}));
  EXPECT_EQ(test::values(ys[1].value()), (std::vector<double>{-3, -4}));
}

TEST(ScalarMix, GradientsAreThoseOfDifferences) {
  Param p = test::param("p", test::random({2, 3}, 1));
  const auto both = [&](const std::vector<Var>& x) {
    const std::vector<Var> ys = scalar_mix(x, p);
    return ys[0] + ys[1];
  };
  const auto last = [&](const std::vector<Var>& x) { return scalar_mix(x, p)[1]; };
  const std::vector<Tensor> xs{test::random({3, 5}, 2), test::random({3, 5}, 3),
                               test::random({3, 5}, 4)};
  test::expect_gradients(both, xs, {&p});
  test::expect_gradients(last, xs, {&p});  // an output that nothing uses
}

TEST(ScalarMix, OfOneTensorTwice) {
  Param p = test::param("p", test::random({1, 2}, 1));
  const auto op = [&](const Var& x) {
    const std::vector<Var> xs{x, x};
    return scalar_mix(xs, p)[0];
  };
  test::expect_gradients(op, test::random({3, 5}, 2), {&p});
  test::expect_accumulates(op, test::random({3, 5}, 2), {&p});
  test::expect_types_agree(op, test::random({3, 333}, 2), {&p});
}

// More tensors than a GPU mixes and multiplies at once; some outputs are not used.
TEST(ScalarMix, OfMany) {
  constexpr int64_t kIn = 6, kOut = 9;
  Param p = test::param("p", test::random({kOut, kIn}, 1));
  for (Param* w : {&p}) {
    for (double& v : w->value.span<double>()) v /= 8;
  }
  const auto op = [&](const Var& x) {
    const std::vector<Var> xs{x, x, x, x, x, x};
    const std::vector<Var> ys = scalar_mix(xs, p);
    return ys[0] + ys[4] + ys[8];
  };
  test::expect_gradients(op, test::random({3, 5}, 2), {&p});
  test::expect_accumulates(op, test::random({3, 5}, 2), {&p});
  test::expect_types_agree(op, test::random({3, 48}, 2), {&p});
}

// As many as AltUp has blocks.
TEST(ScalarMix, OfTheMostBlocks) {
  constexpr int64_t kBlocks = 64;
  Param p = test::param("p", test::random({1, kBlocks}, 1));
  // Few count, or bfloat16 rounds 64 gradients of one tensor.
  std::ranges::fill(p.value.span<double>().subspan(2, kBlocks - 4), 0);
  const auto op = [&](const Var& x) { return scalar_mix(std::vector<Var>(kBlocks, x), p)[0]; };
  test::expect_types_agree(op, test::random({2, 8}, 2), {&p});
}

TEST(ScalarMix, OfOneScalarForBoth) {
  Param a = test::param("a", test::random({1}, 1));
  const auto op = [&](const Var& x) { return scalar_mix(x, a, x + x, a); };
  test::expect_gradients(op, test::random({3, 5}, 2), {&a});
  test::expect_accumulates(op, test::random({3, 5}, 2), {&a});
}

TEST(ScalarMix, OfTwoScalarsOfTheirOwn) {
  Param a = test::param("a", test::random({1}, 1)), b = test::param("b", test::random({1}, 2));
  const auto op = [&](const Var& x) { return scalar_mix(x, a, scalar_mix(x, b, x, a), b); };
  test::expect_gradients(op, test::random({3, 5}, 2), {&a, &b});
  test::expect_accumulates(op, test::random({3, 5}, 2), {&a, &b});
  test::expect_types_agree([&](const Var& x) { return scalar_mix(x, a, x, b); },
                           test::random({3, 333}, 2), {&a, &b});
  EXPECT_THROW(scalar_mix(test::random({4}, 1), a, test::random({5}, 1), b), Error);
}

TEST(ScalarMix, RefusesWhatDoesNotFit) {
  Param p = test::param("p", test::random({2, 3}, 1));
  const std::vector<Var> two{test::random({4}, 1), test::random({4}, 2)};
  EXPECT_THROW(scalar_mix(two, p), Error);
}

}  // namespace
}  // namespace anabranch
