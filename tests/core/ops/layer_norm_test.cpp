#include "core/ops/layer_norm.h"

#include "core/ops/add.h"
#include "core/ops/gelu.h"
#include "tests/support/op_checks.h"

namespace anabranch {
namespace {

// Gain and offset of width n.
struct Affine {
  Param w, b;

  explicit Affine(int64_t n)
      : w(test::param("w", test::random({n}, 3))), b(test::param("b", test::random({n}, 4))) {}

  std::vector<Param*> params() { return {&w, &b}; }
};

// add_layer_norm of x and gelu(x), with both outputs used. The gradient of the sum is nobody
// else's when it arrives, or is also that of the norm.
Var fused(const Var& x, Affine& a, bool shared) {
  const AddNorm out = add_layer_norm(x, gelu(x), a.w, a.b, 1e-2);
  return shared ? out.sum + out.norm : gelu(out.sum) + out.norm;
}

TEST(LayerNorm, IsTheEquationByHand) {
  Param w = test::param("w", Tensor::of<double>({2}, {3, 5}));
  Param b = test::param("b", Tensor::of<double>({2}, {7, 11}));
  // Mean 2, variance 1, eps 3: r = 1/2.
  const Tensor y = layer_norm(Tensor::of<double>({1, 2}, {1, 3}), w, b, 3).value();
  test::expect_near(y, {7 - 1.5, 11 + 2.5}, test::op_tolerance(DType::kF64), "y");

  Tape tape;
  const Var x = tape.input(Tensor::of<double>({1, 2}, {1, 3}));
  tape.backward(layer_norm(x, w, b, 3), Tensor::of<double>({1, 2}, {1, 1}));
  // g = (3, 5), mean g = 4, h = (-1/2, 1/2), mean gh = 1/2.
  const auto tolerance = test::op_tolerance(DType::kF64);
  test::expect_near(tape.take_grad(x), {-0.375, 0.375}, tolerance, "dx");
  test::expect_near(w.grad, {-0.5, 0.5}, tolerance, "dw");
  test::expect_near(b.grad, {1, 1}, tolerance, "db");
}

TEST(LayerNorm, GradientsAreThoseOfDifferences) {
  for (const int64_t n : {1, 5, 67}) {
    Affine a(n);
    test::expect_gradients([&](const Var& x) { return layer_norm(x, a.w, a.b, 1e-2); },
                           test::random({19, n}, 1), a.params());
  }
}

TEST(LayerNorm, TypesAgree) {
  for (const int64_t n : {131, 304}) {
    Affine a(n);
    test::expect_types_agree([&](const Var& x) { return layer_norm(x, a.w, a.b); },
                             test::random({33, n}, 1), a.params());
  }
}

// That a GPU keeps in registers, or reads again.
TEST(LayerNorm, TypesAgreeOnWideRows) {
  for (const int64_t n : {1024, 1032, 2048, 2056}) {
    Affine a(n);
    test::expect_types_agree([&](const Var& x) { return layer_norm(x, a.w, a.b); },
                             test::random({3, n}, 1), a.params());
    test::expect_types_agree([&](const Var& x) { return fused(x, a, false); },
                             test::random({3, n}, 1), a.params());
  }
}

TEST(LayerNorm, Accumulates) {
  Affine a(67);
  test::expect_accumulates([&](const Var& x) { return layer_norm(x, a.w, a.b); },
                           test::random({35, 67}, 1), a.params());
}

TEST(LayerNorm, ThreadsAgree) {
  Affine a(200);
  for (Param* p : a.params()) p->value = test::cast(p->value, DType::kF32);
  const Tensor x = test::random({700, 200}, 1, DType::kF32);
  test::expect_threads_agree([&](const Var& v) { return layer_norm(v, a.w, a.b); }, x, a.params());
  test::expect_threads_agree([&](const Var& v) { return fused(v, a, false); }, x, a.params());
}

TEST(LayerNorm, ALargeMeanDoesNotSpoilTheVariance) {
  Param w = test::param("w", test::full({100}, 1, DType::kF32));
  Param b = test::param("b", test::full({100}, 0, DType::kF32));
  Tensor x({1, 100}, DType::kF32);
  for (int64_t i = 0; i < 100; ++i) x.data<float>()[i] = i % 2 == 0 ? 4097 : 4095;
  const Tensor y = layer_norm(x, w, b).value();
  for (int64_t i = 0; i < 100; ++i) {
    EXPECT_NEAR(y.data<float>()[i], i % 2 == 0 ? 1 : -1, test::op_tolerance(DType::kF32).absolute);
  }
}

TEST(LayerNorm, RefusesOtherShapesAndTypes) {
  Affine a(3);
  EXPECT_THROW(layer_norm(test::random({2, 4}, 1), a.w, a.b), Error);
  EXPECT_THROW(layer_norm(test::random({2, 3}, 1, DType::kF32), a.w, a.b), Error);
  EXPECT_THROW(add_layer_norm(test::random({2, 3}, 1), test::random({1, 3}, 1), a.w, a.b), Error);
}

TEST(AddLayerNorm, IsAddThenLayerNorm) {
  Affine a(67);
  const Tensor x = test::random({5, 67}, 1), delta = test::random({5, 67}, 2);
  const AddNorm out = add_layer_norm(x, delta, a.w, a.b);
  const Var sum = add(x, delta);
  EXPECT_TRUE(test::same_bytes(out.sum.value(), sum.value()));
  EXPECT_TRUE(test::same_bytes(out.norm.value(), layer_norm(sum, a.w, a.b).value()));
}

TEST(AddLayerNorm, GradientsAreThoseOfDifferences) {
  for (const bool shared : {false, true}) {
    Affine a(5);
    test::expect_gradients([&](const Var& x) { return fused(x, a, shared); },
                           test::random({18, 5}, 1), a.params());
  }
}

TEST(AddLayerNorm, TypesAgreeAndGradientsAccumulate) {
  for (const int64_t n : {70, 72}) {
    Affine a(n);
    const auto f = [&](const Var& x) { return fused(x, a, false); };
    test::expect_types_agree(f, test::random({17, n}, 1), a.params());
    test::expect_accumulates(f, test::random({17, n}, 1), a.params());
  }
}

TEST(AddLayerNorm, OneOutputMayBeUnused) {
  Affine a(5);
  const auto sum_only = [&](const Var& x) { return add_layer_norm(x, gelu(x), a.w, a.b).sum; };
  test::expect_gradients(sum_only, test::random({3, 5}, 1), {});
  const auto norm_only = [&](const Var& x) { return add_layer_norm(x, gelu(x), a.w, a.b).norm; };
  test::expect_gradients(norm_only, test::random({3, 5}, 1), a.params());
}

TEST(AddLayerNorm, AConstantInputGetsNoGradient) {
  Affine a(5);
  const Var constant(test::random({3, 5}, 2));
  test::expect_gradients([&](const Var& x) { return add_layer_norm(x, constant, a.w, a.b).norm; },
                         test::random({3, 5}, 1), a.params());
  test::expect_gradients([&](const Var& x) { return add_layer_norm(constant, x, a.w, a.b).norm; },
                         test::random({3, 5}, 1), a.params());
}

TEST(AddLayerNorm, WritesAGradientOfItsOwnInPlaceAndSharesIt) {
  Affine a(5);
  Tape tape;
  const Var x = tape.input(test::random({3, 5}, 1)), delta = tape.input(test::random({3, 5}, 2));
  const AddNorm out = add_layer_norm(x, delta, a.w, a.b);
  Tensor dsum = test::random({3, 5}, 3);
  const std::byte* buffer = dsum.raw();
  tape.give(out.sum, dsum);
  dsum = {};
  tape.backward(out.norm, test::random({3, 5}, 4));
  const Tensor dx = tape.take_grad(x);
  EXPECT_EQ(dx.raw(), buffer);
  EXPECT_TRUE(dx.shares(tape.take_grad(delta)));
}

TEST(AddLayerNorm, LeavesAGradientThatOthersHoldAlone) {
  Affine a(5);
  Tape tape;
  const Var x = tape.input(test::random({3, 5}, 1));
  const AddNorm out = add_layer_norm(x, x, a.w, a.b);
  const Tensor dsum = test::random({3, 5}, 3), dnorm = test::random({3, 5}, 4);
  tape.give(out.sum, dsum);
  tape.backward(out.norm, dnorm);
  EXPECT_TRUE(test::same_bytes(dsum, test::random({3, 5}, 3)));
  EXPECT_TRUE(test::same_bytes(dnorm, test::random({3, 5}, 4)));
}

}  // namespace
}  // namespace anabranch
