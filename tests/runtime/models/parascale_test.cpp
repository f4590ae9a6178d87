#include "runtime/models/parascale.h"

#include "runtime/models/gpt2.h"
#include "tests/runtime/models/decode_checks.h"
#include "tests/runtime/models/family_case.h"

namespace anabranch {
namespace {

test::MakeModel maker(const test::Reference& ref, const std::string& name, bool recompute) {
  return [&ref, name, recompute](DType compute) {
    Gpt2Options o = test::backbone_of(ref, name, compute);
    o.recompute = recompute;
    ParascaleKeys keys;
    keys.streams = ref.count("streams", name);
    keys.prefix = ref.count("n_pref", name);
    keys.smoothing = ref.number("smoothing", name);
    return std::make_unique<Parascale>(o, keys);
  };
}

class ParascaleAgainstPyTorch : public testing::TestWithParam<const char*> {};

TEST_P(ParascaleAgainstPyTorch, LossesGradientsStepsAndDecoding) {
  const test::Reference ref("baselines.h5");
  const std::string name = GetParam();
  const Config config = test::adamw_of_references();
  for (const DType type : {DType::kF64, DType::kF32}) {
    for (const bool recompute : {false, true}) {
      test::FamilyCase c(ref, name, maker(ref, name, recompute), type, config);
      EXPECT_EQ(c.model().cost().parameters, ref.count("n_parameters", name));
      c.expect_all();
      if (type != DType::kF64) continue;
      test::expect_decode_equals_logits(c.model(), ref.integers(name + "/tokens"), test::kModelF64);
      c.expect_steps(test::kStepsF64);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, ParascaleAgainstPyTorch,
                         testing::Values("parascale_p3", "parascale_p1"));

TEST(Parascale, ExtraParametersAreThoseOfThePaper) {
  const test::Reference ref("baselines.h5");
  for (const int64_t streams : {2, 4, 8}) {
    ParascaleKeys keys;
    keys.streams = streams;
    const Gpt2Options o;
    EXPECT_EQ(Parascale(o, keys).cost().parameters - Gpt2(o).cost().parameters,
              ref.count("parascale_extra_12x768_p" + std::to_string(streams)));
  }
}

TEST(Parascale, RefusesDropout) {
  Gpt2Options o;
  o.dropout = 0.1F;
  EXPECT_THROW(Parascale(o, {}), Error);
}

}  // namespace
}  // namespace anabranch
