#include "parallel/collectives.h"

#include "core/tensor/accumulate.h"
#include "core/tensor/convert.h"
#include "tests/support/op_checks.h"
#include "tests/support/tensors.h"

namespace anabranch {
namespace {

constexpr int64_t kRows = 3, kWidth = 4;

// y = x * x, and notes when its backward runs.
Var square(const Var& x, std::vector<std::string>* order) {
  Tensor y = x.value().like("square");
  for (int64_t i = 0; i < y.count(); ++i) {
    y.data<double>()[i] = x.value().data<double>()[i] * x.value().data<double>()[i];
  }
  return x.tape()->record("square", y, {}, [x, order](Tape& t, const Tensor& dy) {
    if (order != nullptr) order->emplace_back("square");
    GradSink dx = t.grad(x);
    for (int64_t i = 0; i < dy.count(); ++i) {
      const double g = 2 * x.value().data<double>()[i] * dy.data<double>()[i];
      dx.out.data<double>()[i] = g + (dx.accumulate ? dx.out.data<double>()[i] : 0);
    }
  });
}

Tensor weights(int rank, int64_t rows) {
  return test::random({rows, kWidth}, 50 + static_cast<uint32_t>(rank));
}

class ShareRows : public testing::TestWithParam<int> {};

// Rank r's loss is sum(w_r * gather(x^2)^2): each rank weighs all rows, so that x's gradient is a
// sum over ranks. The square of x is used beside the transfer as well.
TEST_P(ShareRows, ValuesAndGradientsEqualThoseOfOneRank) {
  const int size = GetParam();
  const Tensor all = test::random({size * kRows, kWidth}, 1);
  Tape reference;
  const Var leaf = reference.input(all);
  const Var once = square(leaf, nullptr);
  const Var twice = square(once, nullptr);
  Tensor seed({size * kRows, kWidth}, DType::kF64);
  seed.fill_zero();
  for (int r = 0; r < size; ++r) accumulate(seed, weights(r, size * kRows));
  reference.backward(twice, seed);
  const std::vector<double> want = test::values(reference.take_grad(leaf));

  run_on_threads(size, [&](Group& g) {
    Tape tape;
    const Var x = tape.input(all.view(g.rank() * kRows * kWidth, {kRows, kWidth}).clone());
    const Pending pending = share_rows_start(square(x, nullptr), g);
    const Var y = square(share_rows_finish(pending), nullptr);
    tape.backward(y, weights(g.rank(), size * kRows));
    EXPECT_EQ(test::values(y.value()), test::values(twice.value()));
    const auto begin = want.begin() + g.rank() * kRows * kWidth;
    test::expect_near(tape.take_grad(x), {begin, begin + kRows * kWidth},
                      test::op_tolerance(DType::kF64), "dx");
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, ShareRows, testing::Values(1, 2, 3, 4, 8));

class SumRows : public testing::TestWithParam<int> {};

// Rank r gives r's partial sums of all rows; the loss weighs the rank's own rows of the total, so
// that the gradient of each partial sum is that of the total.
TEST_P(SumRows, ValuesAndGradientsEqualThoseOfOneRank) {
  const int size = GetParam();
  const Shape shape{size * kRows, kWidth};
  const auto part = [&](int rank) { return test::random(shape, 20 + static_cast<uint32_t>(rank)); };
  Tensor total(shape, DType::kF64);
  total.fill_zero();
  for (int r = 0; r < size; ++r) {
    const Tensor squared = square(Tape().input(part(r)), nullptr).value();
    accumulate(total, squared);
  }
  Tape reference;
  const Var whole = reference.input(total);
  const Tensor seed = test::random(shape, 3);
  reference.backward(square(whole, nullptr), seed);
  const Tensor dtotal = reference.take_grad(whole);

  run_on_threads(size, [&](Group& g) {
    Tape tape;
    const Var x = tape.input(part(g.rank()));
    const Tensor room({kRows, kWidth}, DType::kF64);
    const Var y = sum_rows_finish(sum_rows_start(square(x, nullptr), g, room));
    EXPECT_TRUE(y.value().shares(room));
    const int64_t mine = g.rank() * kRows * kWidth;
    test::expect_near(y.value(), test::values(total.view(mine, {kRows, kWidth})),
                      test::op_tolerance(DType::kF64), "y");
    tape.backward(square(y, nullptr), seed.view(mine, {kRows, kWidth}).clone());
    Tape again;
    const Var leaf = again.input(part(g.rank()));
    again.backward(square(leaf, nullptr), dtotal);
    test::expect_near(tape.take_grad(x), test::values(again.take_grad(leaf)),
                      test::op_tolerance(DType::kF64), "dx");
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, SumRows, testing::Values(1, 2, 3, 4));

// Partial sums travel wide: what is rounded is the sum, once.
TEST(Collectives, PartialSumsAreRoundedWhenTheyAreSummed) {
  for (const int size : {1, 2, 3, 4}) {
    const auto part = [&](int rank) {
      return test::random({size * kRows, kWidth}, 20 + static_cast<uint32_t>(rank), DType::kF32);
    };
    Tensor total = part(0);
    for (int r = 1; r < size; ++r) accumulate(total, part(r));
    const std::vector<double> want = test::values(converted(total, DType::kBF16, "want"));
    run_on_threads(size, [&](Group& g) {
      const int64_t mine = g.rank() * kRows * kWidth;
      const std::vector<double> my_want(want.begin() + mine, want.begin() + mine + kRows * kWidth);
      Tape tape;
      const Var x = tape.input(part(g.rank()));
      const Tensor room({kRows, kWidth}, DType::kBF16);
      const Var y = sum_rows_finish(sum_rows_start(x, g, room));
      test::expect_near(y.value(), my_want, test::kExact, "y");
      tape.backward(y, test::full(y.shape(), g.rank(), DType::kBF16));
      const Tensor dx = tape.take_grad(x);
      EXPECT_EQ(dx.dtype(), DType::kBF16);
      for (int r = 0; r < size; ++r) EXPECT_EQ(test::values(dx)[static_cast<size_t>(r * 12)], r);

      if (size == 1) return;  // then a copy is the row itself
      const Var row = tape.input(test::random({kRows, kWidth}, 5, DType::kBF16));
      const Var copy = share_rows_finish(share_rows_start(row, g, PartialGrad::kWide));
      const Var read = tape.record("read", copy.value(), {}, [&](Tape& t, const Tensor&) {
        GradSink to = t.grad(copy);
        EXPECT_EQ(to.out.dtype(), DType::kF32);
        to.out.copy_from(part(g.rank()));
      });
      tape.backward(read, test::full(read.shape(), 1, DType::kBF16));
      const Tensor drow = tape.take_grad(row);
      EXPECT_EQ(drow.dtype(), DType::kBF16);
      test::expect_near(drow, my_want, test::kExact, "dx");
    });
  }
}

// What lies between start and finish runs between them in backward too.
TEST(Collectives, OtherBackwardsRunBetweenFinishAndStart) {
  run_on_threads(2, [](Group& g) {
    std::vector<std::string> order;
    const auto note = [&](const Var& v, const char* name) { return test::noted(v, name, order); };
    Tape tape;
    const Var x = tape.input(test::random({kRows, kWidth}, 2));
    const Pending pending = share_rows_start(note(x, "before"), g);
    const Var beside = square(x, &order);
    const Var y = note(share_rows_finish(pending), "after");
    const Var both = tape.record("join", y.value(), {}, [&](Tape& t, const Tensor& dy) {
      t.give(y, dy);
      t.give(beside, dy.view(0, {kRows, kWidth}));
    });
    tape.backward(both, test::full(both.shape(), 1));
    EXPECT_EQ(order, (std::vector<std::string>{"after", "square", "before"}));
  });
}

TEST(Collectives, WithoutATapeTheyOnlyCompute) {
  run_on_threads(3, [](Group& g) {
    const Var y = share_rows_finish(share_rows_start(Var(test::full({2, 1}, g.rank())), g));
    EXPECT_EQ(test::values(y.value()), (std::vector<double>{0, 0, 1, 1, 2, 2}));
    EXPECT_EQ(y.tape(), nullptr);
    const Tensor room({1, 1}, DType::kF64);
    const Var sum = sum_rows_finish(sum_rows_start(Var(test::full({3, 1}, g.rank())), g, room));
    EXPECT_EQ(test::values(sum.value()), (std::vector<double>{3}));
    EXPECT_EQ(sum.tape(), nullptr);
  });
}

}  // namespace
}  // namespace anabranch
