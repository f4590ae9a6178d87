#include "core/nn/layers.h"

#include "tests/support/op_checks.h"

namespace anabranch {
namespace {

// "name[shape]" of each parameter, with a * if it decays; each is then filled in float64.
std::vector<std::string> prepare(auto& layer) {
  std::vector<std::string> names;
  set_compute(layer, DType::kF64);
  layer.visit([&](Param& w) {
    names.push_back(join(w.name, w.shape, w.decay ? "*" : ""));
    allocate(w, DType::kF64);
    initialise(w, 1);
  });
  return names;
}

using Names = std::vector<std::string>;

TEST(Layers, LinearIsXWPlusB) {
  Linear layer("fc", 3, 2, true, Init::normal(1));
  EXPECT_EQ(prepare(layer), (Names{"fc.weight[2, 3]*", "fc.bias[2]"}));
  layer.weight.value.copy_from(Tensor::of<double>({2, 3}, {1, 2, 3, 4, 5, 6}));
  layer.bias->value.copy_from(Tensor::of<double>({2}, {10, 20}));
  const Tensor x = Tensor::of<double>({1, 3}, {1, 0, 2});
  EXPECT_EQ(test::values(layer(x).value()), (std::vector<double>{17, 36}));
  Linear plain("head", 3, 2, false, Init::normal(1));
  EXPECT_EQ(prepare(plain), (Names{"head.weight[2, 3]*"}));
}

TEST(Layers, NormsStartAsThePlainNorm) {
  LayerNorm layer("ln", 5);
  EXPECT_EQ(prepare(layer), (Names{"ln.weight[5]", "ln.bias[5]"}));
  RmsNorm rms("rms", 5);
  EXPECT_EQ(prepare(rms), (Names{"rms.weight[5]"}));
  const Tensor x = test::random({3, 5}, 1), delta = test::random({3, 5}, 2);
  test::expect_near(rms(x).value(), test::values(rms_norm(x).value()), test::kExact, "rms");
  const AddNorm out = layer.add(x, delta);
  test::expect_near(out.norm.value(), test::values(layer(out.sum).value()), test::kExact, "norm");
  double sum = 0;
  for (const double v : test::values(out.norm.value())) sum += v;
  EXPECT_NEAR(sum, 0, test::op_tolerance(DType::kF64).absolute);
}

TEST(Layers, EmbeddingTakesRows) {
  Embedding layer("wte", 4, 2, Init::normal(1));
  EXPECT_EQ(prepare(layer), (Names{"wte.weight[4, 2]*"}));
  Tape tape;
  const Var y = layer(&tape, Tensor::of<int32_t>({2}, {3, 0}));
  const std::vector<double> table = test::values(layer.weight.value);
  EXPECT_EQ(test::values(y.value()), (std::vector<double>{table[6], table[7], table[0], table[1]}));
}

}  // namespace
}  // namespace anabranch
