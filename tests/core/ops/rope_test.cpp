#include "core/ops/rope.h"

#include <numeric>

#include "tests/support/op_checks.h"

namespace anabranch {
namespace {

Tensor positions_of(const std::vector<int32_t>& positions) {
  return Tensor::of<int32_t>({std::ssize(positions)}, positions);
}

Tensor consecutive(int32_t n) {
  std::vector<int32_t> positions(static_cast<size_t>(n));
  std::iota(positions.begin(), positions.end(), 0);
  return positions_of(positions);
}

// The definition, an element at a time.
std::vector<double> rotated(const Tensor& qkv, const Tensor& positions, const RopeForm& form) {
  std::vector<double> y = test::values(qkv);
  const int64_t width = qkv.dim(1), half = form.head_dim / 2;
  for (int64_t n = 0; n < qkv.dim(0); ++n) {
    for (int64_t head = 0; head < form.heads_q + form.heads_kv; ++head) {
      for (int64_t i = 0; i < half; ++i) {
        const double power = -2.0 * static_cast<double>(i) / static_cast<double>(form.head_dim);
        const double t = positions.data<int32_t>()[n] * std::pow(form.base, power);
        double& a = y[static_cast<size_t>(n * width + head * form.head_dim + i)];
        double& b = y[static_cast<size_t>(n * width + head * form.head_dim + i + half)];
        const double was = a;
        a = was * std::cos(t) - b * std::sin(t);
        b = was * std::sin(t) + b * std::cos(t);
      }
    }
  }
  return y;
}

// With the positions where x is.
Var turned(const Var& x, const Tensor& positions, const RopeForm& form) {
  return rope(x, positions.copy_in(x.value().pool()), form);
}

constexpr RopeForm kGrouped{.heads_q = 3, .heads_kv = 1, .head_dim = 6, .base = 100};

TEST(Rope, TurnsByThePositionInRadians) {
  const RopeForm form{.heads_q = 1, .heads_kv = 1, .head_dim = 2};
  const Tensor qkv = Tensor::of<double>({1, 6}, {1, 0, 0, 1, 8, 9});
  const Tensor y = rope(qkv, positions_of({2}), form).value();
  const double c = std::cos(2.0), s = std::sin(2.0);
  test::expect_near(y, {c, s, -s, c, 8, 9}, test::op_tolerance(DType::kF64), "y");
}

TEST(Rope, IsTheDefinitionAtAnyPosition) {
  const Tensor positions = positions_of({0, 1, 31, 32, 33, 1023, 1024, 131071, 2000000000});
  const Tensor qkv = test::random({9, 30}, 1);
  // An angle of 2e9 radians has 2e-7 of its last place left in float64: compare the rest closely.
  const Tensor y = rope(qkv, positions, kGrouped).value();
  const std::vector<double> want = rotated(qkv, positions, kGrouped);
  const int64_t kept = qkv.count() - qkv.dim(1);
  test::expect_near(y.view(0, {kept}), {want.begin(), want.begin() + kept},
                    test::op_tolerance(DType::kF64), "y");
  test::expect_near(y, want, test::kGradCheck, "y at 2e9");
}

TEST(Rope, IsTheDefinitionOnEveryDevice) {
  const Tensor positions = positions_of({0, 1, 31, 32, 1023, 131071});
  const Tensor qkv = test::random({6, 30}, 1);
  for (const test::TestDevice& device : test::devices()) {
    const Tensor y = turned(device.place(qkv), positions, kGrouped).value();
    test::expect_near(y, rotated(qkv, positions, kGrouped), {1e-10, 1e-10}, device.name);
  }
}

TEST(Rope, GradientsAreThoseOfDifferences) {
  const Tensor positions = positions_of({0, 3, 50});
  test::expect_gradients([&](const Var& x) { return rope(x, positions, kGrouped); },
                         test::random({3, 30}, 1), {});
}

TEST(Rope, TypesAgreeAndGradientsAccumulate) {
  const Tensor positions = consecutive(40);
  constexpr RopeForm kWide{.heads_q = 2, .heads_kv = 1, .head_dim = 32, .base = 100};
  for (const RopeForm& form : {kGrouped, kWide}) {  // the heads of the second are whole packs
    const int64_t width = form.head_dim * (form.heads_q + 2 * form.heads_kv);
    const auto f = [&](const Var& x) { return turned(x, positions, form); };
    test::expect_types_agree(f, test::random({40, width}, 1), {});
    test::expect_accumulates(f, test::random({40, width}, 1), {});
  }
}

TEST(Rope, ThreadsAgree) {
  const Tensor positions = consecutive(1200);
  test::expect_threads_agree([&](const Var& x) { return rope(x, positions, kGrouped); },
                             test::random({1200, 30}, 1, DType::kF32), {});
}

TEST(Rope, ReversedUndoesIt) {
  RopeForm form = kGrouped;
  form.reversed = true;
  const Tensor positions = positions_of({0, 3, 50}), qkv = test::random({3, 30}, 1);
  const Var there = rope(qkv, positions, kGrouped);
  test::expect_near(rope(there, positions, form).value(), test::values(qkv),
                    test::op_tolerance(DType::kF64), "back");
  test::expect_gradients([&](const Var& x) { return rope(x, positions, form); }, qkv, {});
}

TEST(Rope, ScoresDependOnTheDistanceAlone) {
  const RopeForm form{.heads_q = 1, .heads_kv = 1, .head_dim = 8};
  const Tensor row = test::random({1, 24}, 1);
  const auto score = [&](int32_t at_q, int32_t at_k) {
    const auto q = test::values(rope(row, positions_of({at_q}), form).value());
    const auto k = test::values(rope(row, positions_of({at_k}), form).value());
    double sum = 0;
    for (size_t i = 0; i < 8; ++i) sum += q[i] * k[8 + i];
    return Tensor::of<double>({1}, {sum});
  };
  test::expect_near(score(105, 100), test::values(score(5, 0)), test::op_tolerance(DType::kF64),
                    "score");
}

TEST(Rope, RefusesWhatDoesNotFit) {
  const Tensor qkv = test::random({2, 30}, 1);
  EXPECT_THROW(rope(qkv, positions_of({0}), kGrouped), Error);
  EXPECT_THROW(rope(qkv, positions_of({0, -1}), kGrouped), Error);
  EXPECT_THROW(rope(qkv, Tensor::of<int64_t>({2}, {0, 1}), kGrouped), Error);
  EXPECT_THROW(rope(test::random({2, 29}, 1), positions_of({0, 1}), kGrouped), Error);
  EXPECT_THROW(rope(qkv, positions_of({0, 1}), {.heads_q = 4, .heads_kv = 3, .head_dim = 3}),
               Error);
}

}  // namespace
}  // namespace anabranch
