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
  test::expect_types_agree(twice_the_last, test::random({4, 6}, 1), {});
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
