#include "core/ops/permute_rows.h"

#include <algorithm>
#include <numeric>

#include "core/ops/rows.h"
#include "tests/support/op_checks.h"

namespace anabranch {
namespace {

// 0 .. count - 1, shuffled.
Tensor shuffled(int64_t count, uint32_t seed) {
  std::vector<int32_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  for (int64_t i = count - 1; i > 0; --i) {
    const uint32_t at = philox(seed, static_cast<uint64_t>(i))[0] % static_cast<uint32_t>(i + 1);
    std::swap(order[static_cast<size_t>(i)], order[at]);
  }
  return Tensor::of<int32_t>({count}, order);
}

// Parts of x, of which some have no rows, in another order. Indices are placed where x is.
test::Op of_parts(const std::vector<int64_t>& counts, const Tensor& order) {
  return [=](const Var& x) {
    return permute_rows(split_rows(x, counts), order.copy_in(x.value().pool()));
  };
}

TEST(PermuteRows, TakesEachRowOnce) {
  const Tensor x = Tensor::of<double>({4, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
  const test::Op op = of_parts({1, 0, 3}, Tensor::of<int32_t>({4}, {2, 0, 3, 1}));
  for (const test::TestDevice& device : test::devices()) {
    const auto run =
        test::run_op(op, x, {}, Tensor::of<double>({4, 2}, {1, 10, 2, 20, 3, 30, 4, 40}), device);
    EXPECT_EQ(test::values(run.y), (std::vector<double>{5, 6, 1, 2, 7, 8, 3, 4})) << device.name;
    EXPECT_EQ(test::values(run.dx), (std::vector<double>{2, 20, 4, 40, 1, 10, 3, 30}));
  }
}

TEST(PermuteRows, GradientsAreThoseOfDifferences) {
  test::expect_gradients(of_parts({3, 2, 4}, shuffled(9, 1)), test::random({9, 5}, 1), {});
}

TEST(PermuteRows, TypesAgree) {
  for (const int64_t width : {3, 304}) {
    test::expect_types_agree(of_parts({60, 0, 37}, shuffled(97, 2)), test::random({97, width}, 1),
                             {});
  }
}

// Values have no axis but that of the rows.
TEST(PermuteRows, RowsMayBeElementsAndHaveSeveralAxes) {
  for (const test::TestDevice& device : test::devices()) {
    for (const Shape& shape : {Shape{1000}, Shape{1000, 3, 2}}) {
      const Tensor x = test::random(shape, 1, DType::kF32);
      const test::Op op = of_parts({400, 600}, shuffled(1000, 3));
      const auto want = test::run_op(op, x, {}), got = test::run_op(op, x, {}, {}, device);
      EXPECT_TRUE(test::same_bytes(got.y, want.y)) << device.name << shape;
      EXPECT_TRUE(test::same_bytes(got.dx, want.dx)) << device.name << shape;
    }
  }
}

TEST(PermuteRows, ThreadsAgree) {
  test::expect_threads_agree(of_parts({700, 800}, shuffled(1500, 4)),
                             test::random({1500, 33}, 1, DType::kF32), {});
}

TEST(PermuteRows, NoRows) {
  for (const test::TestDevice& device : test::devices()) {
    const auto run = test::run_op(of_parts({0, 0}, Tensor({0}, DType::kI32)),
                                  test::random({0, 4}, 1), {}, {}, device);
    EXPECT_EQ(run.y.shape(), Shape({0, 4}));
    EXPECT_EQ(run.dx.count(), 0);
  }
}

TEST(PermuteRows, RefusesWhatIsNoOrder) {
  const Var x = test::random({2, 2}, 1);
  const Var pieces[] = {x, test::random({2, 3}, 1)};
  EXPECT_THROW(permute_rows(std::span(&x, 1), Tensor::of<int32_t>({2}, {0, 0})), Error);
  EXPECT_THROW(permute_rows(std::span(&x, 1), Tensor::of<int32_t>({2}, {0, 2})), Error);
  EXPECT_THROW(permute_rows(std::span(&x, 1), Tensor::of<int32_t>({1}, {0})), Error);
  EXPECT_THROW(permute_rows(pieces, shuffled(4, 1)), Error);
  EXPECT_THROW(inverse_order(Tensor::of<int32_t>({2}, {0, 0})), Error);
  EXPECT_THROW(inverse_order(shuffled(3, 1), shuffled(2, 1)), Error);
}

TEST(InverseOrder, UndoesOneOrTwo) {
  const Tensor order = shuffled(700, 5), places = shuffled(700, 6);
  for (const test::TestDevice& device : test::devices()) {
    const Tensor inverse = inverse_order(device.place(order)).on_host();
    const Tensor of_both = inverse_order(device.place(order), device.place(places)).on_host();
    for (int32_t i = 0; i < 700; ++i) {
      const int32_t at = order.data<int32_t>()[i];
      ASSERT_EQ(inverse.data<int32_t>()[at], i) << device.name;
      ASSERT_EQ(of_both.data<int32_t>()[places.data<int32_t>()[at]], i) << device.name;
    }
  }
}

}  // namespace
}  // namespace anabranch
