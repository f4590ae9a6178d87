// What cMoLLM is equal to, and what it does not see: checks T4 to T7 of the paper, by no reference.
#include <algorithm>
#include <map>
#include <string>

#include "core/base/philox.h"
#include "core/nn/init.h"
#include "runtime/models/cmollm.h"
#include "runtime/models/gpt2.h"
#include "tests/support/tensors.h"

namespace anabranch {
namespace {

constexpr int64_t kLayers = 2, kWidth = 16, kVocabulary = 40;

Gpt2Options backbone() {
  Gpt2Options o;
  o.layers = kLayers;
  o.width = kWidth;
  o.heads = 2;
  o.context = 12;
  o.vocabulary = kVocabulary;
  o.compute = DType::kF64;
  return o;
}

// Values in [-0.5, 0.5) that depend on the name alone.
void fill(Param& w) {
  set_compute(w, DType::kF64);
  allocate(w, DType::kF64);
  w.master.copy_from(test::random(w.shape, static_cast<uint32_t>(name_key(w.name))));
  for (double& v : w.master.span<double>()) v /= 2;
}

void set_to(Param& w, double value) { std::ranges::fill(w.master.span<double>(), value); }

Tensor ids() {
  return Tensor::of<int32_t>({2, 10},
                             {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 27, 18, 28, 18, 28, 4, 5, 9, 0, 39});
}

// T4: where all streams have one kernel, gates do not matter.
TEST(CmollmIdentities, EqualStreamsAreGpt2) {
  for (const GeluForm form : {GeluForm::kTanh, GeluForm::kErf}) {
    Gpt2Options o = backbone();
    o.gelu = form;
    CmollmKeys keys;
    keys.streams = 3;
    keys.variant = GateVariant::kSimple;
    Gpt2 dense(o);
    Cmollm mixed(o, keys);
    std::map<std::string, Tensor> weights;
    dense.visit([&](Param& w) {
      fill(w);
      weights[w.name] = w.master;
    });
    mixed.visit([&](Param& w) {
      fill(w);
      std::string name = w.name;
      const auto rename = [&name](const std::string& from, const std::string& to) {
        const size_t at = name.find(from);
        if (at != std::string::npos) name.replace(at, from.size(), to);
        return at != std::string::npos;
      };
      rename("ffn.down", "mlp.c_proj");
      const int64_t copies = rename("ffn.streams", "mlp.c_fc") ? keys.streams : 1;
      const auto found = weights.find(name);
      if (found == weights.end()) return;  // gates
      const Tensor& from = found->second;
      for (int64_t k = 0; k < copies; ++k) {
        w.master.view(k * from.count(), from.shape()).copy_from(from);
      }
    });
    test::expect_near(mixed.logits(ids()), test::values(dense.logits(ids())), test::kModelF64,
                      "logits");
  }
}

TEST(CmollmIdentities, MixingAfterwardsHasOneFormOfGelu) {
  Gpt2Options o = backbone();
  o.gelu = GeluForm::kErf;
  CmollmKeys keys;
  keys.mix = MixPoint::kPost;
  EXPECT_THROW(Cmollm(o, keys), Error);
}

bool same_before(Cmollm& model, int64_t kept) {
  Tensor changed = ids();
  const int64_t T = changed.dim(1);
  const auto before = test::values(model.logits(ids()));
  for (int64_t i = 0; i < changed.count(); ++i) {
    int32_t& id = changed.data<int32_t>()[i];
    if (i % T >= kept) id = (id + 7) % static_cast<int32_t>(kVocabulary);
  }
  const auto after = test::values(model.logits(changed));
  bool same = true;
  for (int64_t b = 0; b < changed.dim(0); ++b) {
    const auto at = b * T * kVocabulary;
    same = same && std::equal(before.begin() + at, before.begin() + at + kept * kVocabulary,
                              after.begin() + at);
  }
  return same;
}

// T5: every variant in every mode is causal to the bit, unless it averages over all of a sequence.
TEST(CmollmIdentities, OnlyAGlobalContextSeesTheFutureInAnyVariantAndMode) {
  int leaks = 0, all = 0;
  CmollmKeys keys;
  keys.streams = 2;
  for (const StreamMode mode : {StreamMode::kFfn, StreamMode::kPipeline}) {
    for (const GateSite site : {GateSite::kRouter, GateSite::kFeature}) {
      if (mode == StreamMode::kPipeline && site == GateSite::kRouter) continue;
      for (size_t v = 0; v < words_of(GateVariant{}).size(); ++v) {
        for (size_t c = 0; c < words_of(GateContext{}).size(); ++c) {
          for (const HeadInput input : {HeadInput::kFull, HeadInput::kSlice}) {
            keys.mode = mode;
            keys.gate_site = site;
            keys.variant = static_cast<GateVariant>(v);
            keys.ctx = static_cast<GateContext>(c);
            keys.head_input = input;
            Cmollm model(backbone(), keys);
            model.visit(fill);
            const bool averages = keys.variant == GateVariant::kContextAware ||
                                  keys.variant == GateVariant::kAdaptive;
            const bool leak = averages && keys.ctx == GateContext::kGlobal;
            EXPECT_EQ(model.has_causal_mode(), !leak);
            EXPECT_EQ(same_before(model, 5), !leak)
                << word_of(mode) << " " << word_of(keys.variant) << " " << word_of(keys.ctx);
            leaks += leak ? 1 : 0;
            ++all;
          }
        }
      }
    }
  }
  EXPECT_EQ(all, 3 * 5 * 3 * 2);
  EXPECT_EQ(leaks, 3 * 2 * 2);
}

FrontEnd front_end(GateVariant variant) {
  CmollmKeys keys;
  keys.variant = variant;
  FrontEnd front("", kWidth, keys);
  front.visit(fill);
  return front;
}

std::vector<double> output(FrontEnd& front, const Tensor& u) {
  StreamContext context;
  context.mean = [](const Var& v) { return prefix_mean(v, 2); };
  return test::values(front(u, context).value());
}

// T6: how the variants reduce to the simple one, of the same weights.
TEST(CmollmIdentities, VariantsReduceToSimple) {
  const Tensor u = test::random({20, kWidth}, 1);
  FrontEnd simple = front_end(GateVariant::kSimple);
  const auto want = output(simple, u);

  FrontEnd adaptive = front_end(GateVariant::kAdaptive);
  EXPECT_NE(output(adaptive, u), want);
  adaptive.scales->visit([](Param& w) { initialise(w, 1); });  // as it starts
  test::expect_near(Tensor::of<double>(u.shape(), output(adaptive, u)), want, test::kModelF64,
                    "adaptive at its start");

  FrontEnd heads = front_end(GateVariant::kMultiHead);
  heads.fuse->weight.init = Init::identity();
  heads.fuse->visit([](Param& w) { initialise(w, 1); });
  test::expect_near(Tensor::of<double>(u.shape(), output(heads, u)), want, test::kModelF64,
                    "multi_head with W_o = I");

  FrontEnd aware = front_end(GateVariant::kContextAware);
  aware.excite->visit([](Param& w) { set_to(w, 0); });
  auto half = output(simple, (*aware.norm)(u).value());
  for (double& v : half) v /= 2;
  test::expect_near(Tensor::of<double>(u.shape(), output(aware, u)), half, test::kModelF64,
                    "context_aware with W_2 = 0");
}

double balance_of(const CmollmKeys& keys, double router_bias) {
  Cmollm model(backbone(), keys);
  model.visit([&](Param& w) {
    fill(w);
    if (w.name.ends_with("router.weight")) set_to(w, 0);
    if (w.name.ends_with("router.bias")) {
      set_to(w, 0);
      w.master.data<double>()[1] = router_bias;
    }
  });
  Measures measures(model.measure_places(2));
  Tape tape;
  const double scale = 1.0 / static_cast<double>(ids().count());
  (void)model.loss(tape, {ids(), ids(), 0}, {1, 0, &measures}, scale);
  return measures.at(0);
}

// T7: alpha for each layer if gates are even, alpha N if all tokens take one stream.
TEST(CmollmIdentities, BalanceIsAlphaWhenEvenAndAlphaNWhenCollapsed) {
  CmollmKeys keys;
  keys.streams = 4;
  keys.bal_alpha = 0.03;
  for (const BalanceScope scope : {BalanceScope::kSequence, BalanceScope::kBatch}) {
    keys.bal_scope = scope;
    EXPECT_NEAR(balance_of(keys, 0), kLayers * 0.03, 1e-15);
    EXPECT_NEAR(balance_of(keys, 1000), kLayers * 4 * 0.03, 1e-15);
  }
}

}  // namespace
}  // namespace anabranch
