#include "core/ops/qk_norm.h"

#include "tests/support/op_checks.h"

namespace anabranch {
namespace {

constexpr double kEps = 1e-3;

Var two_heads(const Var& x) { return qk_norm(x, 2, kEps); }

TEST(QkNorm, EqualsTheEquation) {
  // Two heads of width 2: queries 3 4 | 0 2, keys 1 1 | 0 0, values 5 6 7 8.
  const Tensor x = Tensor::of<double>({1, 12}, {3, 4, 0, 2, 1, 1, 0, 0, 5, 6, 7, 8});
  const double a = std::sqrt(12.5), b = std::sqrt(2.0);
  test::expect_near(qk_norm(x, 2, 0).value().view(0, {6}), {3 / a, 4 / a, 0, 2 / b, 1, 1},
                    test::op_tolerance(DType::kF64), "y");
  test::expect_near(two_heads(x).value().view(6, {6}), {0, 0, 5, 6, 7, 8}, test::kExact, "rest");
}

TEST(QkNorm, GradientsAreThoseOfDifferences) {
  test::expect_gradients(two_heads, test::random({3, 30}, 1), {});
}

TEST(QkNorm, TypesAgreeAndGradientsAccumulate) {
  for (const int64_t width : {102, 96}) {  // the heads of the second are whole packs
    test::expect_types_agree(two_heads, test::random({40, width}, 1), {});
    test::expect_accumulates(two_heads, test::random({40, width}, 1), {});
  }
}

TEST(QkNorm, ThreadsAgree) {
  test::expect_threads_agree(two_heads, test::random({1200, 30}, 1, DType::kF32), {});
}

TEST(QkNorm, RefusesWhatDoesNotFit) {
  EXPECT_THROW(qk_norm(test::random({2, 28}, 1), 2), Error);
  EXPECT_THROW(qk_norm(test::random({2, 30}, 1), 4), Error);
  EXPECT_THROW(qk_norm(test::random({30}, 1), 2), Error);
}

}  // namespace
}  // namespace anabranch
