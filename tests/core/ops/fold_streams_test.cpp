#include "core/ops/fold_streams.h"

#include "tests/support/op_checks.h"

namespace anabranch {
namespace {

Var op(const Var& x) { return fold_streams(x, 2); }

TEST(FoldStreams, PutsStreamsSideBySide) {
  const auto run = test::run_op(op, Tensor::of<double>({4, 1}, {1, 2, 3, 4}), {},
                                Tensor::of<double>({2, 2}, {1, 2, 3, 4}));
  EXPECT_EQ(test::values(run.y), (std::vector<double>{1, 3, 2, 4}));
  EXPECT_EQ(test::values(run.dx), (std::vector<double>{1, 3, 2, 4}));
}

TEST(FoldStreams, GradientsAreThoseOfDifferences) {
  test::expect_gradients(op, test::random({6, 3}, 1), {});
}

TEST(FoldStreams, UnfoldingTurnsBack) {
  const Tensor x = test::random({6, 3}, 1);
  EXPECT_EQ(test::values(unfold_streams(op(x), 2).value()), test::values(x));
  test::expect_gradients([](const Var& v) { return unfold_streams(v, 3); }, test::random({2, 6}, 1),
                         {});
}

TEST(FoldStreams, TypesAgree) {
  const auto back = [](const Var& x) { return unfold_streams(x, 3); };
  for (const int64_t n : {5, 24, 312}) {
    test::expect_types_agree(op, test::random({6, n}, 1), {});
    test::expect_types_agree(back, test::random({7, 3 * n}, 1), {});
  }
  test::expect_types_agree(op, test::random({0, 5}, 1), {});
}

TEST(FoldStreams, Accumulates) { test::expect_accumulates(op, test::random({6, 3}, 1), {}); }

TEST(FoldStreams, RefusesRowsThatDoNotDivide) { EXPECT_THROW(op(test::random({5, 3}, 1)), Error); }

}  // namespace
}  // namespace anabranch
