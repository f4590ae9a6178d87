#include "core/ops/stream_gelu_mix.h"

#include "core/ops/gelu.h"
#include "core/ops/linear.h"
#include "tests/support/device_checks.h"

namespace anabranch {
namespace {

TEST(StreamGeluMix, GradientsAreThoseOfDifferences) {
  Param w = test::param("w", test::random({3, 5, 7}, 1));
  Param b = test::param("b", test::random({3, 5}, 2));
  test::expect_gradients(
      [&](const std::vector<Var>& x) { return stream_gelu_mix(x[0], x[1], w, b); },
      {test::random({4, 7}, 3), test::random({4, 3}, 4)}, {&w, &b});
}

// Mixing after the nonlinearity is another function (Eq. 23 is not Algorithm 1), but for one-hot
// gates.
TEST(StreamGeluMix, IsTheMixedKernelForOneHotGatesAlone) {
  Param w = test::param("w", test::random({2, 9, 7}, 1));
  Param b = test::param("b", test::random({2, 9}, 2));
  const Tensor s = test::random({2, 7}, 3);
  const auto difference = [&](const Tensor& g) {
    const auto post = test::values(stream_gelu_mix(s, g, w, b).value());
    const auto pre = test::values(gelu(stream_linear(s, g, w, b), GeluForm::kTanh).value());
    double most = 0;
    for (size_t i = 0; i < post.size(); ++i) most = std::max(most, std::abs(post[i] - pre[i]));
    return most;
  };
  EXPECT_LT(difference(Tensor::of<double>({2, 2}, {1, 0, 0, 1})), 1e-13);
  EXPECT_GT(difference(Tensor::of<double>({2, 2}, {0.5, 0.5, 0.3, 0.7})), 1e-3);
}

TEST(StreamGeluMix, Accumulates) {
  Param w = test::param("w", test::random({2, 5, 7}, 1));
  Param b = test::param("b", test::random({2, 5}, 2));
  const Tensor g = test::random({4, 2}, 4);
  test::expect_accumulates(
      [&](const Var& s) { return stream_gelu_mix(s, g.copy_in(s.value().pool()), w, b); },
      test::random({4, 7}, 3), {&w, &b});
}

TEST(StreamGeluMix, DevicesAgree) {
  for (const DType type : test::kFloating) {
    const DType sums = accumulator_of(type);
    for (const SumType result : {SumType::kRounded, SumType::kWide}) {
      for (const int64_t F : {5, 272}) {
        for (const int64_t rows : {0, 3, 150}) {
          Param w = test::param("w", test::random({3, F, 16}, 1, type));
          Param b = test::param("b", test::random({3, F}, 2, sums));
          test::expect_devices_agree(
              [&](const std::vector<Var>& x) { return stream_gelu_mix(x[0], x[1], w, b, result); },
              {test::random({rows, 16}, 3, type), test::random({rows, 3}, 4, sums)}, {&w, &b},
              type);
        }
      }
    }
  }
}

TEST(StreamGeluMix, DevicesAgreeOverTilesOfRows) {
  const int64_t rows = 16500;  // more than a tile of either device has
  Param w = test::param("w", test::random({2, 6, 3}, 1));
  Param b = test::param("b", test::random({2, 6}, 2));
  test::expect_devices_agree(
      [&](const std::vector<Var>& x) { return stream_gelu_mix(x[0], x[1], w, b); },
      {test::random({rows, 3}, 3), test::random({rows, 2}, 4)}, {&w, &b}, DType::kF64);
}

TEST(StreamGeluMix, ATreeOfStreamsIsTheSameFunction) {
  Param w = test::param("w", test::random({4, 5, 7}, 1));
  Param b = test::param("b", test::random({4, 5}, 2));
  const auto tree = [&](const std::vector<Var>& x) {
    return stream_gelu_mix(x[0], x[1], w, b, SumType::kRounded, StreamOrder::kTree);
  };
  const std::vector<Tensor> inputs{test::random({4, 7}, 3), test::random({4, 4}, 4)};
  test::expect_gradients(tree, inputs, {&w, &b});
  test::expect_near(tree({inputs[0], inputs[1]}).value(),
                    test::values(stream_gelu_mix(inputs[0], inputs[1], w, b).value()),
                    test::op_tolerance(DType::kF64), "y");
}

TEST(StreamGeluMix, Float32AndBf16StayNearFloat64) {
  Param w = test::param("w", test::cast(test::random({2, 21, 40}, 1, DType::kBF16), DType::kF64));
  Param b = test::param("b", test::random({2, 21}, 2));
  const Tensor s = test::random({1100, 40}, 3, DType::kBF16);
  const Tensor g = test::random({1100, 2}, 4, DType::kF32);
  const auto want = test::values(
      stream_gelu_mix(test::cast(s, DType::kF64), test::cast(g, DType::kF64), w, b).value());
  b.value = test::cast(b.value, DType::kF32);
  for (const DType type : {DType::kF32, DType::kBF16}) {
    w.value = test::cast(w.value, type);
    const Tensor got = stream_gelu_mix(test::cast(s, type), g, w, b).value();
    test::expect_near(got, want, test::op_tolerance(type), "y");
    const Tensor wide = stream_gelu_mix(test::cast(s, type), g, w, b, SumType::kWide).value();
    EXPECT_EQ(wide.dtype(), DType::kF32);
    test::expect_near(test::cast(wide, type), test::values(got), test::kExact, "sums");
  }
}

}  // namespace
}  // namespace anabranch
