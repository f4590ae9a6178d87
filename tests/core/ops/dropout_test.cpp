#include "core/ops/dropout.h"

#include "core/ops/add.h"
#include "tests/support/op_checks.h"

namespace anabranch {
namespace {

constexpr DropoutKey kKey{.key = 42, .first_row = 3};

test::Op op(double rate, DropoutKey key = kKey) {
  return [=](const Var& x) { return dropout(x, rate, key); };
}

Tensor dropped(const Tensor& x, double rate, DropoutKey key) {
  return test::run_op(op(rate, key), x, {}).y;
}

TEST(Dropout, KeepsAnElementIfItsWordOfPhiloxIsHigh) {
  constexpr double kRate = 0.25;
  const int64_t width = 5;
  const std::vector<double> y = test::values(dropped(test::full({40, width}, 3), kRate, kKey));
  for (size_t i = 0; i < y.size(); ++i) {
    const uint64_t element = i + static_cast<uint64_t>(kKey.first_row * width);
    const uint32_t word = philox(kKey.key, element / 4)[element % 4];
    EXPECT_EQ(y[i], word >= 0x40000000U ? 4 : 0) << i;
  }
}

TEST(Dropout, EveryDeviceHasTheBitsOfTheCpu) {
  for (const test::TestDevice& device : test::devices()) {
    for (const DType type : {DType::kF32, DType::kBF16, DType::kF64}) {
      for (const int64_t width : {5, 8, 102}) {
        const Tensor x = test::random({13, width}, 1, type);
        const test::OpRun got = test::run_op(op(0.3), x, {}, {}, device);
        const test::OpRun want = test::run_op(op(0.3), x, {});
        EXPECT_TRUE(test::same_bytes(got.y, want.y)) << device.name << width;
        EXPECT_TRUE(test::same_bytes(got.dx, want.dx)) << device.name << width;
      }
    }
    const Tensor none({0, 8}, DType::kF32);
    EXPECT_EQ(test::run_op(op(0.3), none, {}, {}, device).y.count(), 0);
  }
}

TEST(Dropout, DropsAtTheRate) {
  for (const double rate : {0.1, 0.5, 0.9}) {
    constexpr int64_t kCount = 1'000'000;
    int64_t zeros = 0;
    double sum = 0;
    for (const double v : test::values(dropped(test::full({kCount / 100, 100}, 1), rate, kKey))) {
      zeros += v == 0 ? 1 : 0;
      sum += v;
    }
    const double deviation = std::sqrt(rate * (1 - rate) * kCount);  // of a binomial count
    EXPECT_NEAR(static_cast<double>(zeros), rate * kCount, 5 * deviation);
    EXPECT_NEAR(sum, kCount, 5 * deviation / (1 - rate));
  }
}

TEST(Dropout, KeysGiveDifferentMasks) {
  const Tensor x = test::full({10, 100}, 1);
  const auto a = test::values(dropped(x, 0.5, {1, 0})), b = test::values(dropped(x, 0.5, {2, 0}));
  int64_t equal = 0;
  for (size_t i = 0; i < a.size(); ++i) equal += a[i] == b[i] ? 1 : 0;
  EXPECT_GT(equal, 400);
  EXPECT_LT(equal, 600);
}

TEST(Dropout, TheMaskDoesNotDependOnHowRowsAreSplit) {
  const int64_t width = 37;
  const Tensor x = test::random({50, width}, 1, DType::kF32);
  const Tensor whole = dropped(x, 0.3, {7, 100});
  for (const int64_t rows : {1, 13, 49}) {
    const Tensor head = dropped(x.view(0, {rows, width}), 0.3, {7, 100});
    const Tensor tail = dropped(x.view(rows * width, {50 - rows, width}), 0.3, {7, 100 + rows});
    EXPECT_TRUE(test::same_bytes(head, whole.view(0, head.shape())));
    EXPECT_TRUE(test::same_bytes(tail, whole.view(rows * width, tail.shape())));
  }
}

TEST(Dropout, BackwardUsesTheSameMask) {
  const Tensor ones = test::full({30, 41}, 1);
  const test::OpRun run = test::run_op(op(0.4), ones, {}, ones.clone());
  EXPECT_TRUE(test::same_bytes(run.y, run.dx));
}

TEST(Dropout, GradientsAreThoseOfDifferences) {
  // The check calls the op without a tape, where dropout does nothing: give it one.
  const auto f = [](const Var& x) {
    Tape tape(Tape::Mode::kDry);
    return x.tape() != nullptr ? dropout(x, 0.4, kKey)
                               : Var(dropout(tape.input(x.value()), 0.4, kKey).value());
  };
  test::expect_gradients(f, test::random({3, 7}, 1), {});
}

TEST(Dropout, TypesAgreeAndGradientsAccumulate) {
  test::expect_types_agree(op(0.25), test::random({9, 101}, 1), {});
  test::expect_accumulates(op(0.25), test::random({9, 101}, 1), {});
  test::expect_accumulates([](const Var& x) { return x + dropout(x, 0.5, kKey); },
                           test::random({9, 11}, 1), {});
}

TEST(Dropout, ThreadsAgree) {
  test::expect_threads_agree(op(0.25), test::random({301, 333}, 1, DType::kF32), {});
}

TEST(Dropout, IsTheIdentityAtRateZeroAndWithoutATape) {
  Tape tape;
  const Var x = tape.input(test::random({3, 4}, 1));
  EXPECT_EQ(dropout(x, 0, kKey).id(), x.id());
  EXPECT_TRUE(dropout(x.value(), 0.5, kKey).value().shares(x.value()));
}

TEST(Dropout, RefusesARateOutsideItsRange) {
  for (const double rate : {-0.1, 1.0, std::nan("")}) {
    EXPECT_THROW(dropout(test::random({3, 4}, 1), rate, kKey), Error);
  }
}

}  // namespace
}  // namespace anabranch
