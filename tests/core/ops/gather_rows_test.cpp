#include "core/ops/gather_rows.h"

#include "tests/support/op_checks.h"

namespace anabranch {
namespace {

// Row 2 has no slot, row 0 has three.
const Tensor kSource = Tensor::of<int32_t>({6}, {0, 3, 0, 1, 3, 0});

Var op(const Var& x) { return gather_rows(x, kSource); }

TEST(GatherRows, CopiesAndAddsUp) {
  const Tensor x = Tensor::of<double>({4, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
  const auto run = test::run_op(
      op, x, {}, Tensor::of<double>({6, 2}, {1, 10, 2, 20, 4, 40, 8, 80, 16, 160, 32, 320}));
  EXPECT_EQ(test::values(run.y), (std::vector<double>{1, 2, 7, 8, 1, 2, 3, 4, 7, 8, 1, 2}));
  EXPECT_EQ(test::values(run.dx), (std::vector<double>{37, 370, 8, 80, 0, 0, 18, 180}));
}

TEST(GatherRows, GradientsAreThoseOfDifferences) {
  test::expect_gradients(op, test::random({4, 7}, 1), {});
}

TEST(GatherRows, TypesAgree) { test::expect_types_agree(op, test::random({4, 301}, 1), {}); }

TEST(GatherRows, Accumulates) { test::expect_accumulates(op, test::random({4, 7}, 1), {}); }

TEST(GatherRows, ThreadsAgree) {
  Tensor source({2000}, DType::kI32);
  for (int64_t s = 0; s < 2000; ++s) {
    source.data<int32_t>()[s] = static_cast<int32_t>(philox(3, static_cast<uint64_t>(s))[0] % 301);
  }
  const auto many = [&](const Var& x) { return gather_rows(x, source); };
  test::expect_threads_agree(many, test::random({301, 266}, 1, DType::kF32), {});
}

TEST(GatherRows, NoSlots) {
  const auto none = [](const Var& x) { return gather_rows(x, Tensor({0}, DType::kI32)); };
  const auto run = test::run_op(none, test::random({2, 2}, 1), {});
  EXPECT_EQ(test::values(run.dx), (std::vector<double>{0, 0, 0, 0}));
}

TEST(GatherRows, RefusesWhatIsNotARow) {
  const Tensor x = test::random({4, 2}, 1);
  EXPECT_THROW(gather_rows(x, Tensor::of<int32_t>({1}, {4})), Error);
  EXPECT_THROW(gather_rows(x, Tensor::of<int32_t>({1}, {-1})), Error);
  EXPECT_THROW(gather_rows(x, Tensor::of<int64_t>({1}, {0})), Error);
}

}  // namespace
}  // namespace anabranch
