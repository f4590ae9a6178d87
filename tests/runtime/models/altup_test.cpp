#include "runtime/models/altup.h"

#include "core/nn/init.h"
#include "runtime/models/gpt2.h"
#include "tests/runtime/models/family_case.h"

namespace anabranch {
namespace {

class AltupAgainstPyTorch : public testing::TestWithParam<const char*> {};

TEST_P(AltupAgainstPyTorch, LossesGradientsAndSteps) {
  const test::Reference ref("baselines.h5");
  const std::string name = GetParam();
  const Config config = test::adamw_of_references();
  for (const DType type : {DType::kF64, DType::kF32}) {
    for (const bool recompute : {false, true}) {
      const auto make = [&](DType compute) {
        Gpt2Options o = test::backbone_of(ref, name, compute);
        o.recompute = recompute;
        AltupKeys keys;
        keys.blocks = ref.count("copies", name);
        keys.recycled = ref.count("recycled", name) != 0;
        keys.choice = ref.text("block_choice", name) == "same" ? BlockChoice::kSame
                                                               : BlockChoice::kAlternating;
        return std::make_unique<Altup>(o, keys);
      };
      test::FamilyCase c(ref, name, make, type, config);
      EXPECT_EQ(c.model().cost().parameters, ref.count("n_parameters", name));
      c.expect_all();
      if (type == DType::kF64) c.expect_steps(test::kStepsF64);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, AltupAgainstPyTorch,
                         testing::Values("altup_recycled_k2", "altup_recycled_k3_same",
                                         "altup_k2"));

// At first p = I and g = 1: every block receives what the layer adds, so their mean is GPT-2.
TEST(Altup, RecycledIsGpt2AtTheStart) {
  Gpt2Options o;
  o.layers = 3;
  o.width = 12;
  o.heads = 2;
  o.context = 9;
  o.vocabulary = 17;
  o.compute = DType::kF64;
  Gpt2 dense(o);
  Altup wide(o, {});
  for (Model* model : {static_cast<Model*>(&dense), static_cast<Model*>(&wide)}) {
    model->visit([](Param& w) {
      allocate(w, DType::kF64);
      initialise(w, 1);
    });
  }
  const Tensor ids = Tensor::of<int32_t>({1, 9}, {3, 1, 4, 1, 5, 9, 2, 6, 5});
  test::expect_close(wide.logits(ids), dense.logits(ids), test::kModelF64, "logits");
}

}  // namespace
}  // namespace anabranch
