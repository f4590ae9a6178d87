#include "core/ops/linear_cross_entropy.h"

#include <limits>

#include <gmock/gmock.h>

#include "core/autograd/recompute.h"
#include "core/base/parallel_for.h"
#include "core/ops/embedding.h"
#include "tests/support/devices.h"
#include "tests/support/tensors.h"

namespace anabranch {
namespace {

using test::param;

Tensor some_targets(int64_t N, int64_t V) {
  Tensor targets({N}, DType::kI32);
  for (int64_t n = 0; n < N; ++n) {
    const auto target = static_cast<int32_t>(philox(7, static_cast<uint64_t>(n))[0] % V);
    targets.data<int32_t>()[n] = n % 5 == 3 ? -1 : target;
  }
  return targets;
}

TEST(LinearCrossEntropy, EqualsTheEquation) {
  // Logits of row 0: 0, ln 2, 0; of row 1, which is ignored, whatever; of row 2: 0, 0, 0.
  Param w = param("w", Tensor::of<double>({3, 1}, {0, std::log(2.0), 0}));
  Tape tape;
  const Var x = tape.input(Tensor::of<double>({3, 1}, {1, 5, 0}));
  const Tensor targets = Tensor::of<int32_t>({3}, {1, -1, 2});
  const Var y = linear_cross_entropy(x, w, targets, 0.5);
  EXPECT_NEAR(*y.value().data<double>(), 0.5 * (std::log(2.0) + std::log(3.0)), 1e-14);
  tape.backward(y);
  // dl of row 0: (1/4, 1/2 - 1, 1/4) / 2; of row 2: (1/3, 1/3, -2/3) / 2.
  test::expect_near(tape.take_grad(x), {-0.25 * std::log(2.0), 0, std::log(2.0) / 6},
                    test::op_tolerance(DType::kF64), "dx");
  test::expect_near(w.grad, {0.125, -0.25, 0.125}, test::op_tolerance(DType::kF64), "dw");
}

void expect_right_gradients(int64_t N, double softcap) {
  Param w = param("w", test::random({11, 5}, 1));
  Tensor x = test::random({N, 5}, 2);
  const Tensor targets = some_targets(N, 11);
  Tape tape;
  const Var leaf = tape.input(x);
  tape.backward(linear_cross_entropy(leaf, w, targets, 0.3, softcap));
  const auto at = [&](Tensor& t, int64_t i, double step) {
    const double kept = t.data<double>()[i];
    t.data<double>()[i] = kept + step;
    const double y = *linear_cross_entropy(x, w, targets, 0.3, softcap).value().data<double>();
    t.data<double>()[i] = kept;
    return y;
  };
  const auto check = [&](Tensor& t, const Tensor& gradient, const char* name) {
    std::vector<double> want;
    constexpr double h = 1e-3;
    for (int64_t i = 0; i < t.count(); ++i) {
      want.push_back((8 * (at(t, i, h) - at(t, i, -h)) - (at(t, i, 2 * h) - at(t, i, -2 * h))) /
                     (12 * h));
    }
    test::expect_near(gradient, want, test::kGradCheck, name);
  };
  check(x, tape.take_grad(leaf), "dx");
  check(w.value, w.grad, "dw");
}

TEST(LinearCrossEntropy, Gradients) {
  for (const int64_t N : {1, 7, 33}) {
    for (const double softcap : {0.0, 0.7, 15.0}) expect_right_gradients(N, softcap);
  }
}

TEST(LinearCrossEntropy, TheLossOfCappedLogits) {
  // Logits 0, 2, -1 capped at 0.5.
  Param w = param("w", Tensor::of<double>({3, 1}, {0, 2, -1}));
  const Tensor x = Tensor::of<double>({1, 1}, {1}), targets = Tensor::of<int32_t>({1}, {1});
  const double l1 = 0.5 * std::tanh(4.0), l2 = 0.5 * std::tanh(-2.0);
  const double want = std::log(1 + std::exp(l1) + std::exp(l2)) - l1;
  EXPECT_NEAR(test::values(linear_cross_entropy(x, w, targets, 2, 0.5).value())[0], 2 * want,
              1e-14);
  Tensor losses({1}, DType::kF64), logits = Tensor::of<double>({3}, {0, 2, -1});
  token_losses(losses, x, w, targets, 0.5);
  EXPECT_NEAR(test::values(losses)[0], want, 1e-14);
  cap_logits(logits, 0);
  EXPECT_EQ(test::values(logits), (std::vector<double>{0, 2, -1}));
  cap_logits(logits, 0.5);
  test::expect_near(logits, {0, l1, l2}, test::op_tolerance(DType::kF64), "capped");
}

TEST(LinearCrossEntropy, CappedLogitsOfAnyTypeAreNearFloat64) {
  for (const int64_t n : {1, 1023, 5000}) {
    const Tensor raw = test::random({n}, 3, DType::kBF16);
    Tensor want = test::cast(raw, DType::kF64);
    cap_logits(want, 0.5);
    for (const DType type : {DType::kF32, DType::kBF16}) {
      for (const test::TestDevice& device : test::devices()) {
        Tensor got = device.place(test::cast(raw, type));
        cap_logits(got, 0.5);
        test::expect_near(got, test::values(want), test::op_tolerance(type), device.name);
      }
    }
  }
}

struct Results {
  double loss;
  Tensor dx, dw;
};

Results run(DType type, int64_t N, int64_t V, bool recomputed = false, double softcap = 0,
            const test::TestDevice& device = {"cpu", nullptr}) {
  Param w = param("w", device.place(test::cast(test::random({V, 33}, 1, DType::kBF16), type)));
  w.grad = device.place(test::full({V, 33}, 0.25, accumulator_of(type)));
  w.fresh = N % 2 == 0;  // both ways of the sink
  Tape tape;
  const Tensor rows = test::cast(test::random({N, 33}, 2, DType::kBF16), type);
  const Var x = tape.input(device.place(rows));
  const Tensor targets = device.place(some_targets(N, V));
  const auto loss = [&](const Var& v) {
    return linear_cross_entropy(v, w, targets, 0.125, softcap);
  };
  const Var y = recomputed ? recompute(x, loss) : loss(x);
  tape.backward(y);
  return {test::values(y.value())[0], tape.take_grad(x), w.grad};
}

void expect_near_float64(int64_t N, int64_t V, double softcap, const test::TestDevice& device) {
  const Results want = run(DType::kF64, N, V, false, softcap);
  for (const DType type : {DType::kF32, DType::kBF16, DType::kF64}) {
    if (type == DType::kF64 && !device.pool) continue;
    const Results got = run(type, N, V, false, softcap, device);
    const test::Tolerance near = test::op_tolerance(type);
    EXPECT_NEAR(got.loss, want.loss, near.relative * want.loss + near.absolute) << device.name;
    test::expect_near(got.dx, test::values(want.dx), near, device.name + " dx");
    test::expect_near(got.dw, test::values(want.dw), near, device.name + " dw");
  }
}

TEST(LinearCrossEntropy, LowerPrecisionIsNearFloat64) {
  for (const test::TestDevice& device : test::devices()) {
    // Up to two chunks of the CPU's.
    for (const auto& [N, softcap] : {std::pair(1, 0.0), {33, 0.0}, {1100, 0.0}, {1100, 1.5}}) {
      expect_near_float64(N, 517, softcap, device);
    }
    // Many logits, two sweeps of a GPU's block and a part of one.
    for (const double softcap : {0.0, 1.5}) expect_near_float64(3, 17001, softcap, device);
  }
}

TEST(LinearCrossEntropy, MoreRowsThanAChunkOfAGpu) {
  constexpr int64_t kRows = 4100, V = 33;
  EXPECT_LT(cuda::cross_entropy_rows(kRows, V, DType::kF32), kRows);
  for (const test::TestDevice& device : test::devices()) {
    if (!device.pool) continue;
    expect_near_float64(kRows, V, 0, device);
    expect_near_float64(0, V, 0, device);
  }
}

TEST(LinearCrossEntropy, MoreRowsThanAChunkAreTheSumOfTheirParts) {
  constexpr int64_t N = 1100, C = 5, V = 33;
  Param whole = param("whole", test::random({V, C}, 1)), parts = param("parts", whole.value);
  const Tensor x = test::random({N, C}, 2), targets = some_targets(N, V);
  const auto run_rows = [&](Param& w, int64_t first, int64_t rows) {
    Tape tape;
    const Var leaf = tape.input(x.view(first * C, {rows, C}));
    tape.backward(linear_cross_entropy(leaf, w, targets.view(first, {rows}), 0.5));
    return test::values(tape.take_grad(leaf));
  };
  const std::vector<double> dx = run_rows(whole, 0, N);
  std::vector<double> dx_parts;
  for (int64_t first = 0; first < N; first += 100) {
    for (const double v : run_rows(parts, first, 100)) dx_parts.push_back(v);
  }
  EXPECT_EQ(dx, dx_parts);
  test::expect_near(whole.grad, test::values(parts.grad), test::op_tolerance(DType::kF64), "dw");
}

TEST(LinearCrossEntropy, RecomputeGivesTheSameAndAddsItsGradientOnce) {
  for (const int64_t N : {7, 8}) {
    const Results once = run(DType::kF64, N, 33), again = run(DType::kF64, N, 33, true);
    EXPECT_EQ(once.loss, again.loss);
    EXPECT_EQ(test::values(once.dx), test::values(again.dx));
    EXPECT_EQ(test::values(once.dw), test::values(again.dw));
  }
}

TEST(LinearCrossEntropy, WithoutATapeThereIsNoGradient) {
  Param w = param("w", test::random({33, 5}, 1));
  linear_cross_entropy(test::random({4, 5}, 2), w, some_targets(4, 33), 1);
  EXPECT_TRUE(w.grad.empty());
  EXPECT_TRUE(w.fresh);
}

TEST(LinearCrossEntropy, ATableTiedToTheEmbeddingGetsBothGradients) {
  const Tensor ids = Tensor::of<int32_t>({4}, {1, 0, 2, 1});
  const Tensor targets = Tensor::of<int32_t>({4}, {0, 2, 1, 1});
  Param tied = param("wte", test::random({3, 5}, 1));
  Param table = param("table", tied.value), head = param("head", tied.value);
  int ready = 0;
  Tape tape, apart;
  tape.on_grad_ready = [&](Param&) { ++ready; };
  tape.backward(linear_cross_entropy(embedding(&tape, ids, tied), tied, targets, 1));
  apart.backward(linear_cross_entropy(embedding(&apart, ids, table), head, targets, 1));
  EXPECT_EQ(ready, 1);
  std::vector<double> sum = test::values(table.grad);
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += test::values(head.grad)[i];
  test::expect_near(tied.grad, sum, test::op_tolerance(DType::kF64), "dwte");
}

TEST(LinearCrossEntropy, TokenLossesAreTheTermsOfTheSum) {
  for (const DType type : {DType::kF64, DType::kF32, DType::kBF16}) {
    for (const test::TestDevice& device : test::devices()) {
      Param w = param("w", device.place(test::random({33, 5}, 1, type)));
      const Tensor x = device.place(test::random({9, 5}, 2, type));
      const Tensor targets = device.place(some_targets(9, 33));
      Tensor losses = device.place(Tensor({9}, accumulator_of(type)));
      token_losses(losses, x, w, targets);
      double sum = 0;
      for (const double loss : test::values(losses)) sum += loss;
      const double y = test::values(linear_cross_entropy(x, w, targets, 1).value())[0];
      EXPECT_NEAR(sum, y, 1e-5) << device.name;
      EXPECT_EQ(test::values(losses)[3], 0);
    }
  }
}

TEST(LinearCrossEntropy, LargeLogitsDoNotOverflow) {
  for (const test::TestDevice& device : test::devices()) {
    Param w = param("w", device.place(Tensor::of<float>({2, 1}, {1, -1})));
    const Tensor x = device.place(Tensor::of<float>({1, 1}, {3000}));
    const Tensor targets = device.place(Tensor::of<int32_t>({1}, {1}));
    EXPECT_EQ(test::values(linear_cross_entropy(x, w, targets, 1).value())[0], 6000);
  }
}

void expect_nan_of(float bad, const test::TestDevice& device) {
  for (const DType type : {DType::kF32, DType::kBF16, DType::kF64}) {
    Param w = param("w", device.place(test::random({70, 3}, 1, type)));
    const Tensor x = device.place(test::cast(Tensor::of<float>({1, 3}, {0, bad, 0}), type));
    const Tensor targets = device.place(Tensor::of<int32_t>({1}, {5}));
    for (const double softcap : {0.0, 15.0}) {
      const Var y = linear_cross_entropy(x, w, targets, 1, softcap);
      EXPECT_TRUE(std::isnan(test::values(y.value())[0]))
          << device.name << " " << name_of(type) << " " << bad;
    }
  }
}

TEST(LinearCrossEntropy, NonFiniteInputMakesTheLossNaN) {
  for (const test::TestDevice& device : test::devices()) {
    expect_nan_of(std::numeric_limits<float>::quiet_NaN(), device);
    expect_nan_of(std::numeric_limits<float>::infinity(), device);
  }
}

TEST(LinearCrossEntropy, ABadTargetOfAGpuMakesTheLossNaN) {
  for (const test::TestDevice& device : test::devices()) {
    if (!device.pool) continue;
    Param w = param("w", device.place(test::random({3, 5}, 1)));
    const Tensor x = device.place(test::random({2, 5}, 2));
    for (const int32_t bad : {3, -2}) {
      const Tensor targets = device.place(Tensor::of<int32_t>({2}, {0, bad}));
      EXPECT_TRUE(std::isnan(test::values(linear_cross_entropy(x, w, targets, 1).value())[0]));
    }
  }
}

TEST(LinearCrossEntropy, TheSoftmaxDoesNotDependOnTheNumberOfThreads) {
  // One input channel: each logit is one product, whatever the matrix library does.
  Param w = param("w", test::random({517, 1}, 1, DType::kF32));
  const Tensor x = test::random({700, 1}, 2, DType::kF32), targets = some_targets(700, 517);
  const int threads = thread_count();
  std::vector<double> sums;
  for (const int count : {1, 2}) {
    set_thread_count(count);
    sums.push_back(test::values(linear_cross_entropy(x, w, targets, 1).value())[0]);
  }
  set_thread_count(threads);
  EXPECT_EQ(sums[0], sums[1]);
}

TEST(LinearCrossEntropy, RefusesBadTargetsAndSeeds) {
  Param w = param("w", test::random({3, 5}, 1));
  const Tensor x = test::random({2, 5}, 2);
  for (const int32_t bad : {3, -2}) {
    try {
      linear_cross_entropy(x, w, Tensor::of<int32_t>({2}, {0, bad}), 1);
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(error.fault(), Fault::kData);
      EXPECT_THAT(error.what(), testing::HasSubstr(join("row 1 is ", bad)));
    }
  }
  EXPECT_THROW(linear_cross_entropy(x, w, Tensor::of<int32_t>({1}, {0}), 1), Error);
  EXPECT_THROW(linear_cross_entropy(x, w, Tensor::of<int32_t>({2}, {0, 1}), 1, -15), Error);
  Tape tape;
  const Var y = linear_cross_entropy(tape.input(x), w, Tensor::of<int32_t>({2}, {0, 1}), 1);
  EXPECT_THROW(tape.backward(y, Tensor::of<double>({1}, {2})), Error);
}

}  // namespace
}  // namespace anabranch
