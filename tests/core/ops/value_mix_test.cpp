#include "core/ops/value_mix.h"

#include <array>

#include "core/ops/columns.h"
#include "tests/support/op_checks.h"

namespace anabranch {
namespace {

// `t` where x is, in this type.
Tensor beside(const Var& x, const Tensor& t, DType type) {
  return test::cast(t, type).copy_in(x.value().pool());
}

// qkv and e come of x [N, 4C], so that one input has both gradients.
test::Op of_rows(const Tensor& logits) {
  return [logits](const Var& x) {
    const std::vector<Var> parts = split_columns(x, 4);
    return value_mix(join_columns(std::vector<Var>{parts[0], parts[1], parts[2]}), parts[3],
                     beside(x, logits, accumulator_of(x.dtype())));
  };
}

// The same of the logits.
test::Op of_logits(const Tensor& qkv, const Tensor& e, DType type) {
  return [=](const Var& x) { return value_mix(beside(x, qkv, type), beside(x, e, type), x); };
}

TEST(ValueMix, EqualsTheEquation) {
  const Tensor qkv = Tensor::of<double>({1, 6}, {1, 2, 3, 4, 5, 6});
  const Tensor e = Tensor::of<double>({1, 2}, {10, 20});
  const Tensor logits = Tensor::of<double>({1, 2}, {0, std::log(3.0)});  // gates 1 and 3/2
  test::expect_near(value_mix(qkv, e, logits).value(), {1, 2, 3, 4, 15, 36},
                    test::op_tolerance(DType::kF64), "y");
}

TEST(ValueMix, GradientsAreThoseOfDifferences) {
  const Tensor logits = test::random({3, 2}, 2);
  test::expect_gradients(of_rows(logits), test::random({3, 24}, 1), {});
  const auto op = of_logits(test::random({3, 18}, 3), test::random({3, 6}, 4), DType::kF64);
  test::expect_gradients(op, logits, {});
  test::expect_accumulates(op, logits, {});
}

TEST(ValueMix, TypesAgreeAndGradientsAccumulate) {
  for (const int64_t C : {34, 48}) {
    const test::Op f = of_rows(test::random({40, 2}, 2));
    test::expect_types_agree(f, test::random({40, 4 * C}, 1), {});
    test::expect_accumulates(f, test::random({40, 4 * C}, 1), {});
  }
}

TEST(ValueMix, DevicesAgreeOnTheLogits) {
  for (const test::TestDevice& device : test::devices()) {
    for (const DType type : {DType::kF32, DType::kBF16, DType::kF64}) {
      for (const auto& [N, H, D] :
           std::vector<std::array<int64_t, 3>>{{0, 2, 8}, {5, 3, 7}, {9, 3, 64}, {2, 1, 300}}) {
        const Tensor qkv = test::random({N, 3 * H * D}, 1, type);
        const Tensor e = test::random({N, H * D}, 2, type);
        const Tensor logits = test::random({N, H}, 3, accumulator_of(type));
        const Tensor dy = test::random({N, 3 * H * D}, 4, type);
        const auto run = [&](DType compute, const test::TestDevice& on) {
          return test::run_op(of_logits(qkv, e, compute),
                              test::cast(logits, accumulator_of(compute)), {},
                              test::cast(dy, compute), on);
        };
        const test::OpRun got = run(type, device);
        const test::OpRun want = run(DType::kF64, test::devices().front());
        const auto tolerance = test::op_tolerance(type);
        test::expect_near(got.y, test::values(want.y), tolerance, device.name + " y");
        test::expect_near(got.dx, test::values(want.dx), tolerance, device.name + " dlogits");
      }
    }
  }
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
