#include "core/ops/value_mix.h"

#include "core/ops/columns.h"
#include "core/ops/linear.h"
#include "tests/support/op_checks.h"

namespace anabranch {
namespace {

// qkv, e and the logits all come of x [N, 4C], so that one input has all gradients.
struct Mixed {
  Param gate;

  explicit Mixed(int64_t C) : gate("gate", {2, C}, Init::constant(0)) {
    gate.value = test::random({2, C}, 5);
  }

  Var operator()(const Var& x) {
    const std::vector<Var> parts = split_columns(x, 4);
    return value_mix(join_columns(std::vector<Var>{parts[0], parts[1], parts[2]}), parts[3],
                     linear(parts[0], gate));
  }
};

TEST(ValueMix, EqualsTheEquation) {
  const Tensor qkv = Tensor::of<double>({1, 6}, {1, 2, 3, 4, 5, 6});
  const Tensor e = Tensor::of<double>({1, 2}, {10, 20});
  const Tensor logits = Tensor::of<double>({1, 2}, {0, std::log(3.0)});  // gates 1 and 3/2
  test::expect_near(value_mix(qkv, e, logits).value(), {1, 2, 3, 4, 15, 36},
                    test::op_tolerance(DType::kF64), "y");
}

TEST(ValueMix, GradientsAreThoseOfDifferences) {
  Mixed mixed(6);
  test::expect_gradients([&](const Var& x) { return mixed(x); }, test::random({3, 24}, 1),
                         {&mixed.gate});
}

TEST(ValueMix, TypesAgreeAndGradientsAccumulate) {
  Mixed mixed(34);
  const auto f = [&](const Var& x) { return mixed(x); };
  test::expect_types_agree(f, test::random({40, 136}, 1), {&mixed.gate});
  test::expect_accumulates(f, test::random({40, 136}, 1), {&mixed.gate});
}

TEST(ValueMix, RefusesWhatDoesNotFit) {
  const Tensor qkv = test::random({2, 12}, 1), e = test::random({2, 4}, 2);
  EXPECT_THROW(value_mix(qkv, test::random({2, 3}, 2), test::random({2, 2}, 3)), Error);
  EXPECT_THROW(value_mix(qkv, test::random({1, 4}, 2), test::random({2, 2}, 3)), Error);
  EXPECT_THROW(value_mix(qkv, e, test::random({2, 3}, 3)), Error);
  EXPECT_THROW(value_mix(qkv, e, test::random({2, 2}, 3, DType::kF32)), Error);
}

}  // namespace
}  // namespace anabranch
