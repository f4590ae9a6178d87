#include "core/ops/rows.h"

#include "core/ops/add.h"
#include "tests/support/op_checks.h"

namespace anabranch {
namespace {

TEST(Rows, SplitIntoViewsThatJoin) {
  const Tensor x = test::random({5, 3}, 1);
  const std::vector<Var> parts = split_rows(x, 2);
  ASSERT_EQ(parts.size(), 3U);
  EXPECT_EQ(parts[2].shape(), Shape({1, 3}));
  EXPECT_EQ(parts[1].value().raw(), rows_of(x, 2, 2).raw());
  EXPECT_EQ(join_rows(x, parts).value().raw(), x.raw());
  EXPECT_EQ(split_rows(x, 5).size(), 1U);
  EXPECT_EQ(split_rows(Tensor({0, 3}, DType::kF64), 2).size(), 1U);
}

// The middle part is unused, the others are added to a third.
Var some_rows(const Var& x) {
  const std::vector<Var> parts = split_rows(x, 2);
  return parts[0] + parts[2];
}

TEST(Rows, PartsMayHaveAnyNumberOfThem) {
  const Tensor x = test::random({5, 3}, 1);
  const std::vector<Var> parts = split_rows(x, std::vector<int64_t>{1, 0, 4});
  ASSERT_EQ(parts.size(), 3U);
  EXPECT_EQ(parts[1].shape(), Shape({0, 3}));
  EXPECT_EQ(parts[2].value().raw(), rows_of(x, 1, 4).raw());
  EXPECT_THROW(split_rows(x, std::vector<int64_t>{1, 3}), Error);
}

// Rows 1 and 2 are in no part that is used.
Var some_counted_rows(const Var& x) {
  const std::vector<Var> parts = split_rows(x, std::vector<int64_t>{1, 2, 0, 1, 2});
  return parts[0] + parts[3];
}

Var there_and_back(const Var& x) { return join_rows(x.value(), split_rows(x, 4)); }

TEST(Rows, GradientsAreThoseOfDifferences) {
  for (const auto& f : {some_rows, some_counted_rows, there_and_back}) {
    test::expect_gradients(f, test::random({6, 3}, 1), {});
    test::expect_accumulates(f, test::random({6, 3}, 1), {});
    test::expect_types_agree(f, test::random({6, 3}, 1), {});
  }
}

TEST(Rows, JoinsOnlyWhatLiesTogether) {
  const Tensor x = test::random({4, 2}, 1);
  std::vector<Var> parts = split_rows(x, 2);
  EXPECT_THROW(join_rows(x.clone(), parts), Error);
  EXPECT_THROW(join_rows(x, std::span(parts).first(1)), Error);
  std::swap(parts[0], parts[1]);
  EXPECT_THROW(join_rows(x, parts), Error);
}

TEST(Rows, ABiasIsAddedBeforeTheSumIsRounded) {
  Param b = test::param("b", test::random({3}, 2));
  const auto add = [&](const Var& x) { return add_row(x, b, x.dtype()); };
  test::expect_gradients(add, test::random({4, 3}, 1), {&b});
  test::expect_accumulates(add, test::random({4, 3}, 1), {&b});
  test::expect_types_agree(add, test::random({40, 3}, 1), {&b});
  for (const int64_t width : {7, 40, 300}) {
    Param wide = test::param("b", test::random({width}, 2));
    const auto add_wide = [&](const Var& x) { return add_row(x, wide, x.dtype()); };
    for (const int64_t rows : {0, 1, 300}) {
      test::expect_types_agree(add_wide, test::random({rows, width}, 1), {&wide});
    }
  }

  // bf16 has seven bits: the sum alone rounds to 1, with the bias to 1 + 2^-7.
  for (const test::TestDevice& device : test::devices()) {
    for (const int64_t width : {1, 16}) {
      Param small = test::param("b", test::full({width}, std::ldexp(1, -9), DType::kF32));
      const std::vector<Param*> params{&small};
      const test::ParamsOn there(device, params);
      Tape tape;
      const Var x =
          tape.input(device.place(test::full({1, width}, 1 + std::ldexp(1, -8), DType::kF32)));
      const Var y = add_row(x, small, DType::kBF16);
      EXPECT_EQ(test::values(y.value()),
                std::vector<double>(static_cast<size_t>(width), 1 + std::ldexp(1, -7)));
      tape.backward(y, device.place(test::full({1, width}, 1, DType::kBF16)));
      EXPECT_EQ(tape.take_grad(x).dtype(), DType::kBF16);
    }
  }
}

}  // namespace
}  // namespace anabranch
