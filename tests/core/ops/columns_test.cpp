#include "core/ops/columns.h"

#include "tests/support/op_checks.h"

namespace anabranch {
namespace {

TEST(Columns, SplitAndJoin) {
  const Tensor x = Tensor::of<double>({2, 4}, {1, 2, 3, 4, 5, 6, 7, 8});
  const std::vector<Var> parts = split_columns(x, 2);
  EXPECT_EQ(test::values(parts[0].value()), (std::vector<double>{1, 2, 5, 6}));
  EXPECT_EQ(test::values(parts[1].value()), (std::vector<double>{3, 4, 7, 8}));
  EXPECT_EQ(test::values(join_columns(parts).value()), test::values(x));
}

Var twice_the_last(const Var& x) {
  const std::vector<Var> parts = split_columns(x, 3);
  const std::vector<Var> chosen{parts[2], parts[0], parts[2]};  // the middle one is unused
  return join_columns(chosen);
}

TEST(Columns, GradientsAreThoseOfDifferences) {
  test::expect_gradients(twice_the_last, test::random({4, 6}, 1), {});
  test::expect_accumulates(twice_the_last, test::random({4, 6}, 1), {});
  for (const int64_t width : {3, 6, 48, 51, 600}) {
    test::expect_types_agree(twice_the_last, test::random({40, width}, 1), {});
  }
  test::expect_types_agree(twice_the_last, Tensor({0, 6}, DType::kF64), {});
}

// Views that begin anywhere.
TEST(Columns, TakeAnyPlaceInMemory) {
  for (const test::TestDevice& device : test::devices()) {
    for (const DType type : {DType::kBF16, DType::kF32, DType::kF64}) {
      for (const int64_t first : {0, 1, 2, 8}) {
        const Tensor whole = test::random({first + 3 * 64}, 1, type);
        const Tensor x = whole.view(first, {3, 64});
        const Var placed = device.place(whole).view(first, {3, 64});
        for (const int64_t column : {0, 5, 16}) {
          const Tensor got = take_columns(placed, column, 32).value();
          EXPECT_TRUE(test::same_bytes(got, take_columns(x, column, 32).value()))
              << device.name << first << " " << column;
        }
        EXPECT_TRUE(test::same_bytes(join_columns(split_columns(placed, 4)).value(), x));
      }
    }
  }
}

TEST(Columns, TheFirst) {
  const Tensor x = Tensor::of<double>({2, 3}, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(test::values(first_columns(x, 2).value()), (std::vector<double>{1, 2, 4, 5}));
  const auto two = [](const Var& v) { return first_columns(v, 2); };
  test::expect_gradients(two, test::random({4, 6}, 1), {});
  test::expect_accumulates(two, test::random({4, 6}, 1), {});
  EXPECT_THROW(first_columns(x, 4), Error);
}

TEST(Columns, ThoseBetween) {
  const Tensor x = Tensor::of<double>({2, 4}, {1, 2, 3, 4, 5, 6, 7, 8});
  EXPECT_EQ(test::values(take_columns(x, 1, 2).value()), (std::vector<double>{2, 3, 6, 7}));
  const auto some = [](const Var& v) { return take_columns(v, 16, 24); };
  test::expect_types_agree(some, test::random({40, 64}, 1), {});
  const auto two = [](const Var& v) { return take_columns(v, 3, 2); };
  test::expect_gradients(two, test::random({4, 6}, 1), {});
  test::expect_accumulates(two, test::random({4, 6}, 1), {});
  EXPECT_THROW(take_columns(x, 3, 2), Error);
  EXPECT_THROW(take_columns(x, -1, 2), Error);
}

TEST(Columns, RefuseWhatDoesNotDivide) {
  EXPECT_THROW(split_columns(test::random({4, 5}, 1), 2), Error);
}

}  // namespace
}  // namespace anabranch
