#include "core/ops/add.h"

#include "tests/support/op_checks.h"

namespace anabranch {
namespace {

TEST(Add, IsTheSum) {
  const Var z = Var(Tensor::of<double>({2}, {1, 2})) + Var(Tensor::of<double>({2}, {3, 5}));
  EXPECT_EQ(test::values(z.value()), (std::vector<double>{4, 7}));
}

TEST(Add, GradientsAreThoseOfDifferences) {
  const Tensor y = test::random({3, 5}, 2);
  test::expect_gradients([](const Var& x) { return (x + x) + x; }, test::random({3, 5}, 1), {});
  test::expect_gradients([&](const Var& x) { return x + y; }, test::random({3, 5}, 1), {});
  test::expect_gradients([&](const Var& x) { return y + x; }, test::random({3, 5}, 1), {});
}

TEST(Add, TypesAgree) {
  for (const int64_t n : {105, 800}) {
    test::expect_types_agree([](const Var& x) { return x + x; }, test::random({3, n}, 1), {});
  }
}

TEST(Add, Accumulates) {
  test::expect_accumulates([](const Var& x) { return x + x; }, test::random({3, 105}, 1), {});
}

TEST(Add, ThreadsAgree) {
  test::expect_threads_agree([](const Var& x) { return x + x; },
                             test::random({50, 999}, 1, DType::kF32), {});
}

TEST(Add, BothGradientsAreTheIncomingOne) {
  Tape tape;
  const Var x = tape.input(test::random({3}, 1)), y = tape.input(test::random({3}, 2));
  const Tensor dz = test::random({3}, 3);
  tape.backward(x + y, dz);
  EXPECT_TRUE(tape.take_grad(x).shares(dz));
  EXPECT_TRUE(tape.take_grad(y).shares(dz));
}

TEST(Add, RefusesOtherShapesAndTypes) {
  EXPECT_THROW(add(test::random({3}, 1), test::random({1, 3}, 1)), Error);
  EXPECT_THROW(add(test::random({3}, 1), test::random({3}, 1, DType::kF32)), Error);
}

}  // namespace
}  // namespace anabranch
