#include "core/ops/gather_rows.h"

#include "tests/support/op_checks.h"

namespace anabranch {
namespace {

// Row 2 has no slot, row 0 has three.
const Tensor kSource = Tensor::of<int32_t>({6}, {0, 3, 0, 1, 3, 0});

// Sources, placed where x is.
Var gather(const Var& x, const Tensor& source) {
  return gather_rows(x, source.copy_in(x.value().pool()));
}

Var op(const Var& x) { return gather(x, kSource); }

TEST(GatherRows, CopiesAndAddsUp) {
  const Tensor x = Tensor::of<double>({4, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
  for (const test::TestDevice& device : test::devices()) {
    const auto run = test::run_op(
        op, x, {}, Tensor::of<double>({6, 2}, {1, 10, 2, 20, 4, 40, 8, 80, 16, 160, 32, 320}),
        device);
    EXPECT_EQ(test::values(run.y), (std::vector<double>{1, 2, 7, 8, 1, 2, 3, 4, 7, 8, 1, 2}));
    EXPECT_EQ(test::values(run.dx), (std::vector<double>{37, 370, 8, 80, 0, 0, 18, 180}));
  }
}

TEST(GatherRows, GradientsAreThoseOfDifferences) {
  test::expect_gradients(op, test::random({4, 7}, 1), {});
}

TEST(GatherRows, TypesAgree) {
  for (const int64_t width : {301, 304}) {
    test::expect_types_agree(op, test::random({4, width}, 1), {});
  }
}

TEST(GatherRows, Accumulates) { test::expect_accumulates(op, test::random({4, 7}, 1), {}); }

Tensor random_sources(int64_t slots, uint32_t rows) {
  Tensor source({slots}, DType::kI32);
  for (int64_t s = 0; s < slots; ++s) {
    source.data<int32_t>()[s] = static_cast<int32_t>(philox(3, static_cast<uint64_t>(s))[0] % rows);
  }
  return source;
}

TEST(GatherRows, ThreadsAgree) {
  const Tensor source = random_sources(2000, 301);
  const auto many = [&](const Var& x) { return gather_rows(x, source); };
  test::expect_threads_agree(many, test::random({301, 266}, 1, DType::kF32), {});
}

// Sums in the order of the slots: the same bits on every device. Rows of many slots, and many rows.
TEST(GatherRows, DevicesAgreeToTheBit) {
  for (const int64_t rows : {1, 7, 301, 1700}) {
    const Tensor x = test::random({rows, 6}, 1, DType::kF32);
    const Tensor source = random_sources(2000, static_cast<uint32_t>(rows));
    const auto many = [&](const Var& v) { return gather(v, source); };
    const auto want = test::run_op(many, x, {});
    for (const test::TestDevice& device : test::devices()) {
      const auto got = test::run_op(many, x, {}, {}, device);
      EXPECT_TRUE(test::same_bytes(got.y, want.y)) << device.name << " " << rows;
      EXPECT_TRUE(test::same_bytes(got.dx, want.dx)) << device.name << " " << rows;
    }
  }
}

TEST(GatherRows, NoSlotsAndNoRows) {
  const auto none = [](const Var& x) { return gather(x, Tensor({0}, DType::kI32)); };
  for (const test::TestDevice& device : test::devices()) {
    const auto run = test::run_op(none, test::random({2, 2}, 1), {}, {}, device);
    EXPECT_EQ(test::values(run.dx), (std::vector<double>{0, 0, 0, 0}));
    EXPECT_EQ(test::run_op(none, test::random({0, 2}, 1), {}, {}, device).dx.count(), 0);
  }
}

// What a plan of unknown size has behind its last slot.
TEST(GatherRows, UnusedSlotsOfAGpuAreZero) {
  for (const test::TestDevice& device : test::devices()) {
    if (!device.pool) continue;
    const auto some = [](const Var& x) {
      return gather(x, Tensor::of<int32_t>({4}, {1, 0, -1, -1}));
    };
    const auto run = test::run_op(some, Tensor::of<double>({2, 1}, {3, 5}), {},
                                  Tensor::of<double>({4, 1}, {1, 2, 4, 8}), device);
    EXPECT_EQ(test::values(run.y), (std::vector<double>{5, 3, 0, 0}));
    EXPECT_EQ(test::values(run.dx), (std::vector<double>{2, 1}));
  }
}

TEST(GatherRows, RefusesWhatIsNotARow) {
  const Tensor x = test::random({4, 2}, 1);
  EXPECT_THROW(gather_rows(x, Tensor::of<int32_t>({1}, {4})), Error);
  EXPECT_THROW(gather_rows(x, Tensor::of<int32_t>({1}, {-1})), Error);
  EXPECT_THROW(gather_rows(x, Tensor::of<int64_t>({1}, {0})), Error);
}

}  // namespace
}  // namespace anabranch
