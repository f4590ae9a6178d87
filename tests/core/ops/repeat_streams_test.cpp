#include "core/ops/repeat_streams.h"

#include "tests/support/op_checks.h"

namespace anabranch {
namespace {

Var op(const Var& x) { return repeat_streams(x, 3); }

TEST(RepeatStreams, CopiesAndSums) {
  const auto run = test::run_op(op, Tensor::of<double>({1, 2}, {1, 2}), {},
                                Tensor::of<double>({3, 2}, {1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(test::values(run.y), (std::vector<double>{1, 2, 1, 2, 1, 2}));
  EXPECT_EQ(test::values(run.dx), (std::vector<double>{9, 12}));
}

TEST(RepeatStreams, GradientsAreThoseOfDifferences) {
  test::expect_gradients(op, test::random({5, 3}, 1), {});
}

TEST(RepeatStreams, TypesAgree) {
  for (const int64_t rows : {0, 5, 8}) {
    test::expect_types_agree(op, test::random({rows, 33}, 1), {});
  }
}

TEST(RepeatStreams, Accumulates) { test::expect_accumulates(op, test::random({5, 3}, 1), {}); }

}  // namespace
}  // namespace anabranch
