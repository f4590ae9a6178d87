#include "runtime/models/cmollm.h"

#include "core/nn/init.h"
#include "runtime/models/gpt2.h"
#include "tests/runtime/models/decode_checks.h"
#include "tests/runtime/models/family_case.h"

namespace anabranch {
namespace {

template <class E>
E word(const test::Reference& ref, const std::string& key, const std::string& name) {
  const std::string text = ref.text(key, name);
  const auto words = words_of(E{});
  for (size_t i = 0; i < words.size(); ++i) {
    if (text == words[i]) return static_cast<E>(i);
  }
  AB_FAIL("no ", key, " called ", text);
}

CmollmKeys keys_of(const test::Reference& ref, const std::string& name) {
  CmollmKeys k;
  k.mode = word<StreamMode>(ref, "mode", name);
  k.streams = ref.count("streams", name);
  k.variant = word<GateVariant>(ref, "variant", name);
  k.gate_site = word<GateSite>(ref, "gate_site", name);
  k.gate_heads = ref.count("gate_heads", name);
  k.head_input = word<HeadInput>(ref, "head_input", name);
  k.ctx = word<GateContext>(ref, "ctx", name);
  k.ctx_decay = ref.number("ctx_decay", name);
  k.bal_alpha = ref.number("bal_alpha", name);
  k.bal_scope = word<BalanceScope>(ref, "bal_scope", name);
  k.mix = word<MixPoint>(ref, "mix", name);
  k.agg = word<Aggregator>(ref, "agg", name);
  k.beta = ref.number("beta", name);
  const std::string span = ref.text("span", name);
  k.span = span == "whole" ? 0 : std::stoll(span.substr(span.find(':') + 1));
  return k;
}

test::MakeModel maker(const test::Reference& ref, const std::string& name, MixOrder order,
                      bool recompute) {
  return [&ref, name, order, recompute](DType compute) {
    Gpt2Options o = test::backbone_of(ref, name, compute);
    o.recompute = recompute;
    CmollmKeys keys = keys_of(ref, name);
    keys.mix_order = order;
    return std::make_unique<Cmollm>(o, keys);
  };
}

struct Case {
  const char* name;
  bool steps;
};

class CmollmAgainstPyTorch : public testing::TestWithParam<Case> {};

TEST_P(CmollmAgainstPyTorch, LossesGradientsStepsAndDecoding) {
  const test::Reference ref("cmollm.h5");
  const std::string name = GetParam().name;
  const Config config = test::adamw_of_references();
  for (const DType type : {DType::kF64, DType::kF32}) {
    for (const MixOrder order : {MixOrder::kScaled, MixOrder::kBranch}) {
      for (const bool recompute : {false, true}) {
        test::FamilyCase c(ref, name, maker(ref, name, order, recompute), type, config);
        EXPECT_EQ(c.model().cost().parameters, ref.count("n_parameters", name));
        c.expect_all();
        if (type != DType::kF64 || recompute) continue;
        if (c.model().has_causal_mode()) {
          test::expect_decode_equals_logits(c.model(), ref.integers(name + "/tokens"),
                                            test::kModelF64);
        }
        if (GetParam().steps) c.expect_steps(test::kStepsF64);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Cases, CmollmAgainstPyTorch,
    testing::Values(Case{"ffn_linear", true}, Case{"ffn_simple", false},
                    Case{"ffn_context_aware", false}, Case{"ffn_multi_head", true},
                    Case{"ffn_multi_head_slice", false}, Case{"ffn_adaptive", false},
                    Case{"ffn_simple_feature", false}, Case{"ffn_adaptive_feature", true},
                    Case{"ffn_linear_bal_batch", false}, Case{"ffn_linear_mix_post", false},
                    Case{"ffn_context_aware_ema", false}, Case{"ffn_context_aware_global", false},
                    Case{"pipeline_linear", true}, Case{"pipeline_simple_agg_linear", false},
                    Case{"pipeline_context_aware_block", false}, Case{"pipeline_adaptive", false}),
    [](const auto& c) { return std::string(c.param.name); });

// T5: what comes later changes nothing before, but for gates that average over all of it.
TEST(Cmollm, OnlyAGlobalContextSeesTheFuture) {
  const test::Reference ref("cmollm.h5");
  const Config config;
  for (const char* name :
       {"ffn_linear", "ffn_simple", "ffn_context_aware", "ffn_multi_head", "ffn_adaptive_feature",
        "ffn_context_aware_ema", "ffn_context_aware_global", "pipeline_linear",
        "pipeline_context_aware_block"}) {
    test::FamilyCase c(ref, name, maker(ref, name, MixOrder::kScaled, false), DType::kF64, config);
    Tensor ids = ref.integers(std::string(name) + "/tokens").clone();
    const int64_t T = ids.dim(1), V = c.model().vocabulary(), kept = T / 2;
    const std::vector<double> before = test::values(c.model().logits(ids));
    for (int64_t t = kept; t < T; ++t) {
      int32_t& id = ids.data<int32_t>()[t];
      id = (id + 1) % static_cast<int32_t>(V);
    }
    const std::vector<double> after = test::values(c.model().logits(ids));
    const bool same = std::equal(before.begin(), before.begin() + kept * V, after.begin());
    EXPECT_EQ(same, c.model().has_causal_mode()) << name;
  }
}

TEST(Cmollm, AGlobalContextHasNoCausalLoss) {
  const test::Reference ref("cmollm.h5");
  const std::string name = "ffn_context_aware_global";
  const Config config;
  test::FamilyCase c(ref, name, maker(ref, name, MixOrder::kScaled, false), DType::kF64, config);
  const MicroBatch batch{ref.integers(name + "/tokens"), ref.integers(name + "/targets")};
  EXPECT_THROW(c.model().token_losses(batch), Error);
  EXPECT_NO_THROW(c.model().token_losses(batch, Routing::kAsTrained));
}

// T4: one stream of variant linear is GPT-2, to the bit.
TEST(Cmollm, OneStreamIsGpt2) {
  Gpt2Options o;
  o.layers = 2;
  o.width = 32;
  o.heads = 2;
  o.context = 16;
  o.vocabulary = 50;
  CmollmKeys keys;
  keys.streams = 1;
  Gpt2 dense(o);
  Cmollm mixed(o, keys);
  std::map<std::string, Tensor> weights;
  const auto fill = [&](Param& w) {
    allocate(w, DType::kF32);
    initialise(w, 1);
  };
  dense.visit([&](Param& w) {
    fill(w);
    weights[w.name] = w.value;
  });
  const auto renamed = [](std::string name) {
    for (const auto& [from, to] :
         {std::pair{"ffn.streams", "mlp.c_fc"}, {"ffn.down", "mlp.c_proj"}}) {
      const size_t at = name.find(from);
      if (at != std::string::npos) name.replace(at, std::string(from).size(), to);
    }
    return name;
  };
  mixed.visit([&](Param& w) {
    fill(w);
    const auto found = weights.find(renamed(w.name));
    if (found != weights.end()) w.value.copy_from(found->second);
  });
  const Tensor ids = Tensor::of<int32_t>({2, 5}, {3, 1, 4, 1, 5, 9, 2, 6, 5, 3});
  EXPECT_EQ(test::values(mixed.logits(ids)), test::values(dense.logits(ids)));
}

TEST(Cmollm, ParametersAreThoseOfTheTable) {
  const test::Reference ref("cmollm.h5");

  struct Backbone {
    int64_t layers, width;
  };

  for (const Backbone& b : {Backbone{12, 768}, {24, 1024}, {24, 1536}}) {
    for (const int64_t streams : {2, 4, 8}) {
      const auto words = words_of(GateVariant{});
      for (size_t v = 0; v < words.size(); ++v) {
        Gpt2Options o;
        o.layers = b.layers;
        o.width = b.width;
        o.heads = 16;
        CmollmKeys keys;
        keys.streams = streams;
        keys.variant = static_cast<GateVariant>(v);
        const std::string name =
            join("cmollm_", b.layers, "x", b.width, "_", words[v], "_n", streams);
        EXPECT_EQ(Cmollm(o, keys).cost().non_embedding_parameters, ref.count(name)) << name;
      }
    }
  }
}

// The figures of even and of collapsed gates.
TEST(StreamMeasures, ReadWhatGatesDo) {
  const StreamMeasures figures(1, 2);
  Measures sums(figures.places());
  sums.detailed = true;
  figures.add_gates(sums, 0, Tensor::of<double>({2, 2}, {1, 0, 0, 1}));
  std::vector<Reading> readings;
  figures.read_gates(readings, sums, 0, {});
  std::map<Metric, double> values;
  for (const Reading& r : readings) values[r.metric] = r.value;
  EXPECT_DOUBLE_EQ(values[Metric::kStreamLoad], 0.5);
  EXPECT_DOUBLE_EQ(values[Metric::kEffectiveStreams], 2);
  EXPECT_DOUBLE_EQ(values[Metric::kGateSharpness], 0);
  EXPECT_DOUBLE_EQ(values[Metric::kGateSpecialisation], std::log(2.0));
  EXPECT_DOUBLE_EQ(values[Metric::kLoadVariation], 0);
  Tensor quiet = Tensor::of<double>({2}, {7, 7});
  figures.count_quiet(sums, 0, quiet);
  EXPECT_EQ(test::values(quiet), (std::vector<double>{0, 0}));
}

}  // namespace
}  // namespace anabranch
