#include "core/ops/rms_norm.h"

#include "core/ops/add.h"
#include "core/ops/gelu.h"
#include "tests/support/op_checks.h"

namespace anabranch {
namespace {

struct Gain {
  Param w;

  explicit Gain(int64_t n) : w(test::param("w", test::random({n}, 3))) {}

  std::vector<Param*> params() { return {&w}; }
};

// add_rms_norm of x and gelu(x), with both outputs used. The gradient of the sum is nobody
// else's when it arrives, or is also that of the norm.
Var fused(const Var& x, Gain& a, bool shared) {
  const AddRmsNorm out = add_rms_norm(x, gelu(x), a.w, 1e-2);
  return shared ? out.sum + out.norm : gelu(out.sum) + out.norm;
}

TEST(RmsNorm, IsTheEquationByHand) {
  const auto tolerance = test::op_tolerance(DType::kF64);
  const Tensor one_seven = Tensor::of<double>({1, 2}, {1, 7});
  Param w = test::param("w", Tensor::of<double>({2}, {3, 5}));
  // Mean square 25, eps 75: r = 1/10.
  test::expect_near(rms_norm(one_seven, w, 75).value(), {0.3, 3.5}, tolerance, "y");
  test::expect_near(rms_norm(one_seven, 75).value(), {0.1, 0.7}, tolerance, "y without gain");

  Tape tape;
  const Var x = tape.input(one_seven);
  tape.backward(rms_norm(x, w, 75), Tensor::of<double>({1, 2}, {1, 1}));
  // g = (3, 5), mean gx = 19: dx = (g - x 19 / 100) / 10.
  test::expect_near(tape.take_grad(x), {0.281, 0.367}, tolerance, "dx");
  test::expect_near(w.grad, {0.1, 0.7}, tolerance, "dw");
}

TEST(RmsNorm, WorksWithoutAGain) {
  const auto plain = [](const Var& x) { return rms_norm(x, 1e-2); };
  test::expect_gradients(plain, test::random({4, 67}, 1), {});
  test::expect_types_agree(plain, test::random({4, 67}, 1), {});
  const auto fused_plain = [](const Var& x) {
    const AddRmsNorm out = add_rms_norm(x, gelu(x), 1e-2);
    return gelu(out.sum) + out.norm;
  };
  test::expect_gradients(fused_plain, test::random({4, 5}, 1), {});
}

TEST(RmsNorm, GradientsAreThoseOfDifferences) {
  for (const int64_t n : {1, 5, 67}) {
    Gain a(n);
    test::expect_gradients([&](const Var& x) { return rms_norm(x, a.w, 1e-2); },
                           test::random({19, n}, 1), a.params());
  }
}

TEST(RmsNorm, TypesAgree) {
  for (const int64_t n : {131, 304}) {
    Gain a(n);
    test::expect_types_agree([&](const Var& x) { return rms_norm(x, a.w); },
                             test::random({33, n}, 1), a.params());
  }
}

// That a GPU keeps in registers, or reads again.
TEST(RmsNorm, TypesAgreeOnWideRows) {
  for (const int64_t n : {1024, 1032, 2048, 2056}) {
    Gain a(n);
    test::expect_types_agree([&](const Var& x) { return rms_norm(x, a.w); },
                             test::random({3, n}, 1), a.params());
  }
}

TEST(RmsNorm, Accumulates) {
  Gain a(67);
  test::expect_accumulates([&](const Var& x) { return rms_norm(x, a.w); },
                           test::random({35, 67}, 1), a.params());
}

TEST(RmsNorm, ThreadsAgree) {
  Gain a(200);
  for (Param* p : a.params()) p->value = test::cast(p->value, DType::kF32);
  const Tensor x = test::random({700, 200}, 1, DType::kF32);
  test::expect_threads_agree([&](const Var& v) { return rms_norm(v, a.w); }, x, a.params());
  test::expect_threads_agree([&](const Var& v) { return fused(v, a, false); }, x, a.params());
}

TEST(RmsNorm, RefusesOtherShapesAndTypes) {
  Gain a(3);
  EXPECT_THROW(rms_norm(test::random({2, 4}, 1), a.w), Error);
  EXPECT_THROW(rms_norm(test::random({2, 3}, 1, DType::kF32), a.w), Error);
  EXPECT_THROW(add_rms_norm(test::random({2, 3}, 1), test::random({1, 3}, 1), a.w), Error);
}

TEST(AddRmsNorm, IsAddThenRmsNorm) {
  Gain a(67);
  const Tensor x = test::random({5, 67}, 1), delta = test::random({5, 67}, 2);
  const AddRmsNorm out = add_rms_norm(x, delta, a.w);
  const Var sum = add(x, delta);
  EXPECT_TRUE(test::same_bytes(out.sum.value(), sum.value()));
  EXPECT_TRUE(test::same_bytes(out.norm.value(), rms_norm(sum, a.w).value()));
}

TEST(AddRmsNorm, GradientsAreThoseOfDifferences) {
  for (const bool shared : {false, true}) {
    Gain a(5);
    test::expect_gradients([&](const Var& x) { return fused(x, a, shared); },
                           test::random({18, 5}, 1), a.params());
  }
}

TEST(AddRmsNorm, TypesAgreeAndGradientsAccumulate) {
  for (const int64_t n : {70, 72}) {
    Gain a(n);
    const auto f = [&](const Var& x) { return fused(x, a, false); };
    test::expect_types_agree(f, test::random({17, n}, 1), a.params());
    test::expect_accumulates(f, test::random({17, n}, 1), a.params());
  }
}

TEST(AddRmsNorm, OneOutputMayBeUnused) {
  Gain a(5);
  const auto sum_only = [&](const Var& x) { return add_rms_norm(x, gelu(x), a.w).sum; };
  test::expect_gradients(sum_only, test::random({3, 5}, 1), {});
  const auto norm_only = [&](const Var& x) { return add_rms_norm(x, gelu(x), a.w).norm; };
  test::expect_gradients(norm_only, test::random({3, 5}, 1), a.params());
}

TEST(AddRmsNorm, AConstantInputGetsNoGradient) {
  Gain a(5);
  const Var constant(test::random({3, 5}, 2));
  test::expect_gradients([&](const Var& x) { return add_rms_norm(x, constant, a.w).norm; },
                         test::random({3, 5}, 1), a.params());
  test::expect_gradients([&](const Var& x) { return add_rms_norm(constant, x, a.w).norm; },
                         test::random({3, 5}, 1), a.params());
}

TEST(AddRmsNorm, WritesAGradientOfItsOwnInPlaceAndSharesIt) {
  Gain a(5);
  Tape tape;
  const Var x = tape.input(test::random({3, 5}, 1)), delta = tape.input(test::random({3, 5}, 2));
  const AddRmsNorm out = add_rms_norm(x, delta, a.w);
  Tensor dsum = test::random({3, 5}, 3);
  const std::byte* buffer = dsum.raw();
  tape.give(out.sum, dsum);
  dsum = {};
  tape.backward(out.norm, test::random({3, 5}, 4));
  const Tensor dx = tape.take_grad(x);
  EXPECT_EQ(dx.raw(), buffer);
  EXPECT_TRUE(dx.shares(tape.take_grad(delta)));
}

TEST(AddRmsNorm, LeavesAGradientThatOthersHoldAlone) {
  Gain a(5);
  Tape tape;
  const Var x = tape.input(test::random({3, 5}, 1));
  const AddRmsNorm out = add_rms_norm(x, x, a.w);
  const Tensor dsum = test::random({3, 5}, 3), dnorm = test::random({3, 5}, 4);
  tape.give(out.sum, dsum);
  tape.backward(out.norm, dnorm);
  EXPECT_TRUE(test::same_bytes(dsum, test::random({3, 5}, 3)));
  EXPECT_TRUE(test::same_bytes(dnorm, test::random({3, 5}, 4)));
}

}  // namespace
}  // namespace anabranch
