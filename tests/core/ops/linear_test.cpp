#include "core/ops/linear.h"

#include "core/base/parallel_for.h"
#include "core/ops/gelu.h"
#include "tests/support/op_checks.h"

namespace anabranch {
namespace {

using test::param;

TEST(Linear, EqualsTheEquation) {
  Param w = param("w", Tensor::of<double>({2, 3}, {1, 2, 3, 4, 5, 6}));
  Param bias = param("b", Tensor::of<double>({2}, {10, 20}));
  Tape tape;
  const Var x = tape.input(Tensor::of<double>({2, 3}, {1, 0, -1, 2, 1, 0}));
  const Var y = linear(x, w, &bias);
  EXPECT_EQ(test::values(y.value()), (std::vector<double>{8, 18, 14, 33}));
  tape.backward(y, Tensor::of<double>({2, 2}, {1, 2, 3, 4}));
  EXPECT_EQ(test::values(tape.take_grad(x)), (std::vector<double>{9, 12, 15, 19, 26, 33}));
  EXPECT_EQ(test::values(w.grad), (std::vector<double>{7, 3, -1, 10, 4, -2}));
  EXPECT_EQ(test::values(bias.grad), (std::vector<double>{4, 6}));
}

TEST(Linear, Gradients) {
  for (const int64_t N : {1, 7, 33}) {
    Param w = param("w", test::random({5, 7}, 1)), bias = param("b", test::random({5}, 2));
    const Tensor x = test::random({N, 7}, 3);
    test::expect_gradients([&](const Var& v) { return linear(v, w, &bias); }, x, {&w, &bias});
    test::expect_gradients([&](const Var& v) { return linear(v, w); }, x, {&w});
    test::expect_gradients([&](const Var& v) { return linear_gelu(v, w, bias); }, x, {&w, &bias});
  }
}

TEST(Linear, ASecondUseAccumulates) {
  Param w = param("w", test::random({7, 7}, 1)), bias = param("b", test::random({7}, 2));
  const auto twice = [&](const Var& v) { return linear(linear(v, w, &bias), w, &bias); };
  test::expect_gradients(twice, test::random({3, 7}, 3), {&w, &bias});
}

// Its sums are those that linear() rounds; a gradient of their rounded type does.
TEST(Linear, WideSumsAreNotRounded) {
  Param w = param("w", test::random({5, 7}, 1));
  test::expect_gradients([&](const Var& v) { return linear_wide(v, w); }, test::random({4, 7}, 3),
                         {&w});
  for (const DType type : {DType::kF32, DType::kBF16}) {
    Param rounded = param("w", test::random({5, 7}, 1, type));
    Tape tape;
    const Var x = tape.input(test::random({4, 7}, 3, type));
    const Var y = linear_wide(x, rounded), narrow = linear(x, rounded);
    EXPECT_EQ(y.dtype(), DType::kF32);
    test::expect_near(test::cast(y.value(), type), test::values(narrow.value()), test::kExact, "y");
    const Tensor dy = test::random({4, 5}, 9, type);
    tape.backward(narrow, dy);
    const Tensor dx = tape.take_grad(x), dw = rounded.grad.clone();
    Tape again;
    const Var leaf = again.input(x.value());
    rounded.fresh = true;
    again.backward(linear_wide(leaf, rounded), dy);
    test::expect_near(again.take_grad(leaf), test::values(dx), test::kExact, "dx");
    test::expect_near(rounded.grad, test::values(dw), test::kExact, "dw");
  }
}

TEST(Linear, KeepsLeadingAxes) {
  Param w = param("w", test::random({5, 7}, 1));
  EXPECT_EQ(linear(test::random({2, 3, 7}, 2), w).shape(), (Shape{2, 3, 5}));
}

struct Results {
  Tensor y, dx, dw, db;
};

Results run(DType type, DType bias_type, bool with_gelu, int64_t N, int64_t M = 33,
            const test::TestDevice& device = {"cpu", nullptr}) {
  // Values that bf16 holds exactly, so that only the op's own rounding shows.
  const auto rounded = [](Shape shape, uint32_t seed) {
    return test::random(shape, seed, DType::kBF16);
  };
  Param w = param("w", test::cast(rounded({M, 70}, 1), type));
  Param bias = param("b", test::cast(rounded({M}, 2), bias_type));
  const auto op = [&](const Var& x) {
    return with_gelu ? linear_gelu(x, w, bias) : linear(x, w, &bias);
  };
  const test::OpRun got = test::run_op(op, test::cast(rounded({N, 70}, 3), type), {&w, &bias},
                                       test::cast(rounded({N, M}, 4), type), device);
  return {got.y, got.dx, got.dparams[0], got.dparams[1]};
}

void expect_near_float64(int64_t N, int64_t M, bool with_gelu, const test::TestDevice& device) {
  const Results want = run(DType::kF64, DType::kF64, with_gelu, N, M);
  const auto compare = [&](DType type, DType bias_type) {
    const Results got = run(type, bias_type, with_gelu, N, M, device);
    const test::Tolerance near = test::op_tolerance(type);
    // Sums of terms each of which went through one rounding: of M, or of N rows.
    const auto sum_of = [near](int64_t terms) {
      return test::Tolerance{near.relative, near.absolute * std::sqrt(static_cast<double>(terms))};
    };
    test::expect_near(got.y, test::values(want.y), near, device.name + " y");
    test::expect_near(got.dx, test::values(want.dx), sum_of(M), device.name + " dx");
    test::expect_near(got.dw, test::values(want.dw), sum_of(N), device.name + " dw");
    test::expect_near(got.db, test::values(want.db), sum_of(N), device.name + " db");
  };
  compare(DType::kF32, DType::kF32);
  compare(DType::kBF16, DType::kF32);
  compare(DType::kBF16, DType::kBF16);
  if (device.pool) compare(DType::kF64, DType::kF64);
}

// Of widths that whole packs of elements fit, and of one that they do not.
TEST(Linear, LowerPrecisionIsNearFloat64) {
  for (const test::TestDevice& device : test::devices()) {
    for (const bool with_gelu : {false, true}) {
      for (const int64_t N : {1, 33, 700}) expect_near_float64(N, 33, with_gelu, device);
      expect_near_float64(45, 288, with_gelu, device);
    }
  }
}

TEST(Linear, NoRowsGiveZeroGradients) {
  for (const test::TestDevice& device : test::devices()) {
    const Results none = run(DType::kBF16, DType::kF32, true, 0, 33, device);
    EXPECT_EQ(none.y.count() + none.dx.count(), 0);
    EXPECT_EQ(test::values(none.db), std::vector<double>(33, 0));
    EXPECT_EQ(test::values(none.dw), std::vector<double>(33 * 70, 0));
  }
}

// A router: its matrix, and so its output, is wider than the activations.
TEST(Linear, AWideMatrixBesideBf16Rows) {
  Param w = param("w", test::random({5, 70}, 1, DType::kF32));
  const auto op = [&](const Var& x) { return linear(x, w); };
  const Tensor x = test::random({9, 70}, 3, DType::kBF16);
  for (const test::TestDevice& device : test::devices()) {
    w.value = test::cast(w.value, DType::kF32);
    const test::OpRun got = test::run_op(op, x, {&w}, {}, device);
    EXPECT_EQ(got.y.dtype(), DType::kF32);
    EXPECT_EQ(got.dx.dtype(), DType::kBF16);
    w.value = test::cast(w.value, DType::kF64);
    const Tensor dy = test::cast(test::random(got.y.shape(), 99, DType::kF32), DType::kF64);
    const test::OpRun want = test::run_op(op, test::cast(x, DType::kF64), {&w}, dy);
    test::expect_near(got.y, test::values(want.y), test::op_tolerance(DType::kF32), device.name);
    test::expect_near(got.dx, test::values(want.dx), test::op_tolerance(DType::kBF16), "dx");
    test::expect_near(got.dparams[0], test::values(want.dparams[0]),
                      test::op_tolerance(DType::kF32), "dw");
  }
}

TEST(Linear, Accumulates) {
  Param w = param("w", test::random({5, 7}, 1)), bias = param("b", test::random({5}, 2));
  const Tensor x = test::random({33, 7}, 3);
  test::expect_accumulates([&](const Var& v) { return linear(v, w, &bias); }, x, {&w, &bias});
  test::expect_accumulates([&](const Var& v) { return linear_gelu(v, w, bias); }, x, {&w, &bias});
  test::expect_accumulates([&](const Var& v) { return linear_wide(v, w); }, x, {&w});
}

TEST(Linear, GradientsOfParametersAreFloatInBf16Runs) {
  const Results got = run(DType::kBF16, DType::kF32, false, 3);
  EXPECT_EQ(got.dw.dtype(), DType::kF32);
  EXPECT_EQ(got.db.dtype(), DType::kF32);
  EXPECT_EQ(got.dx.dtype(), DType::kBF16);
}

TEST(Linear, FusedGeluIsLinearThenGelu) {
  Param w = param("w", test::random({33, 7}, 1, DType::kF32));
  Param bias = param("b", test::random({33}, 2, DType::kF32));
  const Tensor x = test::random({600, 7}, 3, DType::kF32);
  EXPECT_EQ(test::values(linear_gelu(x, w, bias).value()),
            test::values(gelu(linear(x, w, &bias)).value()));
}

TEST(Linear, ColumnSumsDoNotDependOnTheNumberOfThreads) {
  const int threads = thread_count();
  for (const DType type : {DType::kF32, DType::kBF16, DType::kF64}) {
    const Tensor dy = test::random({777, 33}, 1, type);
    std::vector<std::vector<double>> results;
    for (const int count : {1, 2, 7}) {
      set_thread_count(count);
      GradSink db{test::full({33}, 1, accumulator_of(type)), true};
      cpu::column_sums(db, dy);
      results.push_back(test::values(db.out));
    }
    EXPECT_EQ(results[0], results[1]);
    EXPECT_EQ(results[0], results[2]);
  }
  set_thread_count(threads);
}

TEST(Linear, RefusesWhatDoesNotFit) {
  Param w = param("w", test::random({5, 7}, 1)), bias = param("b", test::random({4}, 2));
  Param half = param("w", test::random({5, 7}, 1, DType::kBF16));
  EXPECT_THROW(linear(test::random({2, 6}, 3), w), Error);
  EXPECT_THROW(linear(test::random({2, 7}, 3), w, &bias), Error);
  EXPECT_THROW(linear(test::random({2, 7}, 3), half), Error);
}

}  // namespace
}  // namespace anabranch
