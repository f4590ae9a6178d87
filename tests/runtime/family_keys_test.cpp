// Every key that only some families have changes what it says, and nothing before that.
#include <regex>
#include <set>

#include <gtest/gtest.h>

#include "runtime/config/validate.h"
#include "runtime/models/registry.h"
#include "runtime/training_state.h"
#include "tests/support/tensors.h"
#include "tests/support/tolerance.h"

namespace anabranch {
namespace {

// Where a changed key first shows, in the order of a run.
enum class Shows : uint8_t {
  kSizes,           // in the number or the values of the parameters
  kLoss,            // in the first training loss
  kGradient,        // in the first gradient
  kLater,           // in the parameters after some steps
  kTrainedRouting,  // in an evaluation routed as in training
  kRounding         // nowhere but in the last bits
};

struct KeyCase {
  const char* family;
  std::vector<std::string> given;  // on which it is seen
  const char* set;
  Shows shows;
};

// Names of Shows in a failure.
std::ostream& operator<<(std::ostream& out, Shows shows) {
  static constexpr std::array kNames{"sizes",           "loss",    "gradient", "later",
                                     "trained routing", "rounding"};
  return out << kNames.at(static_cast<size_t>(shows));
}

void PrintTo(const KeyCase& c, std::ostream* out) { *out << c.family << ' ' << c.set; }

const std::string kMoepSizes = "model.windows=[5, 3, 2]";

std::vector<KeyCase> cases() {
  const std::vector<std::string> context{"model.variant=adaptive"};
  const std::vector<std::string> heads{"model.variant=multi_head"};
  const std::vector<std::string> slices{"model.variant=multi_head", "model.head_input=slice"};
  const std::vector<std::string> pipeline{"model.mode=pipeline"};
  const std::vector<std::string> capped{"model.capacity_train=0.6"};
  const std::vector<std::string> tokens{"model.select=token_choice"};
  const std::vector<std::string> masked{"model.causal_ratio=0.001"};
  const std::vector<std::string> pool{"model.pool_sequences=2"};
  return {
      {"gpt2", {}, "model.dropout=0.1", Shows::kLoss},
      {"gpt2", {}, "model.gelu=erf", Shows::kLoss},
      {"gpt2", {}, "model.norm_eps=0.01", Shows::kLoss},
      {"cmollm", {}, "model.mode=pipeline", Shows::kSizes},
      {"cmollm", {}, "model.streams=2", Shows::kSizes},
      {"cmollm", {}, "model.variant=simple", Shows::kSizes},
      {"cmollm", {"model.variant=simple"}, "model.gate_site=feature", Shows::kLoss},
      {"cmollm", slices, "model.gate_heads=2", Shows::kSizes},
      {"cmollm", heads, "model.head_input=slice", Shows::kSizes},
      {"cmollm", context, "model.ctx=ema", Shows::kLoss},
      {"cmollm", {"model.variant=adaptive", "model.ctx=ema"}, "model.ctx_decay=0.5", Shows::kLoss},
      {"cmollm", {}, "model.bal_alpha=1", Shows::kGradient},
      {"cmollm", {"model.bal_alpha=1"}, "model.bal_scope=batch", Shows::kGradient},
      {"cmollm", {}, "model.mix=post", Shows::kLoss},
      {"cmollm", {}, "model.mix_order=branch", Shows::kRounding},
      {"cmollm", pipeline, "model.agg=linear", Shows::kSizes},
      {"cmollm", pipeline, "model.beta=0.5", Shows::kLoss},
      {"cmollm", pipeline, "model.span=1", Shows::kSizes},
      {"parascale", {}, "model.streams=2", Shows::kSizes},
      {"parascale", {}, "model.prefix=2", Shows::kSizes},
      {"parascale", {}, "model.smoothing=0.5", Shows::kLoss},
      {"altup", {}, "model.blocks=3", Shows::kSizes},
      {"altup", {}, "model.recycled=false", Shows::kSizes},
      {"altup", {}, "model.choice=same", Shows::kLoss},
      {"moep_msit", {}, "model.windows=[5, 3]", Shows::kSizes},
      {"moep_msit", {}, "model.expert_width=24", Shows::kSizes},
      {"moep_msit", {}, "model.expert_heads=1", Shows::kLoss},
      {"moep_msit", {}, "model.capacity=2", Shows::kLoss},
      {"moep_msit", {}, "model.select=token_choice", Shows::kLoss},
      {"moep_msit", {}, "model.pool_sequences=2", Shows::kLoss},
      {"moep_msit", {"model.window=compact"}, "model.order=affinity", Shows::kLoss},
      {"moep_msit", pool, "model.segments=pool", Shows::kLoss},
      {"moep_msit", {}, "model.rope_position=compact", Shows::kLoss},
      {"moep_msit", {}, "model.window=compact", Shows::kLoss},
      {"moep_msit", {}, "model.windowed=false", Shows::kLoss},
      {"moep_msit", {}, "model.global_block=false", Shows::kSizes},
      {"moep_msit", {"model.width=28"}, "model.ffn_round=ceil", Shows::kSizes},
      {"moep_msit", {"model.select=threshold"}, "model.threshold_decay=0.5", Shows::kLater},
      {"moep_msit", tokens, "model.aux_alpha=1", Shows::kGradient},
      {"moep_msit", {"model.select=predictor"}, "model.predictor_weight=0.1", Shows::kGradient},
      {"moep_msit", {}, "model.dropout=0.1", Shows::kLoss},
      {"moep_msit", {}, "model.causal_ratio=0.001", Shows::kLoss},
      {"moep_msit", masked, "model.mask_first=0.5", Shows::kLoss},
      {"moep_msit", masked, "model.mask_last=0.5", Shows::kLater},
      {"moep_msit", masked, "model.mlm_target=same", Shows::kLoss},
      {"moep_msit", {"model.width=28"}, "model.compat=reference", Shows::kSizes},
      {"kappa_moe",
       {"model.layers=0", "model.width=0", "model.heads=0", "model.depth=2", "model.moe_first=0"},
       "model.depth=1",
       Shows::kSizes},
      {"kappa_moe", {}, "model.experts=3", Shows::kSizes},
      {"kappa_moe", {}, "model.top_k=1", Shows::kLoss},
      {"kappa_moe", {}, "model.moe_first=0", Shows::kSizes},
      {"kappa_moe", {"model.layers=3"}, "model.moe_layers=1", Shows::kSizes},
      {"kappa_moe", {"model.layers=4"}, "model.sandwich=true", Shows::kSizes},
      {"kappa_moe", {}, "model.kappa=false", Shows::kSizes},
      {"kappa_moe", {}, "model.kappa_alpha=false", Shows::kSizes},
      {"kappa_moe", {}, "model.kappa_b=false", Shows::kSizes},
      {"kappa_moe", {}, "model.kappa_range=6", Shows::kLoss},
      {"kappa_moe", {}, "model.kappa_scale_alpha=3", Shows::kLoss},
      {"kappa_moe", {}, "model.kappa_scale_b=3", Shows::kLoss},
      {"kappa_moe", {}, "model.kappa_router_grad=0", Shows::kGradient},
      {"kappa_moe", {}, "model.l2_alpha=1", Shows::kGradient},
      {"kappa_moe", {}, "model.l2_b=1", Shows::kGradient},
      {"kappa_moe", {}, "model.balance=1", Shows::kGradient},
      {"kappa_moe",
       {"model.balance_steps=3", "model.balance=1"},
       "model.balance_first=50",
       Shows::kGradient},
      {"kappa_moe",
       {"model.balance_first=50", "model.balance_steps=3"},
       "model.balance_steps=2",
       Shows::kLater},
      {"kappa_moe", {"model.balance=1"}, "model.pool_sequences=2", Shows::kGradient},
      {"kappa_moe", {}, "model.z_loss=1", Shows::kGradient},
      {"kappa_moe", {"model.z_loss=1"}, "model.z_form=demeaned", Shows::kGradient},
      {"kappa_moe", {"model.z_loss=1"}, "model.z_input_grad=0", Shows::kGradient},
      {"kappa_moe", {}, "model.capacity_train=0.6", Shows::kLoss},
      {"kappa_moe", capped, "model.capacity_eval=0.6", Shows::kTrainedRouting},
      {"kappa_moe", {}, "model.softcap=5", Shows::kLoss},
      {"kappa_moe", {}, "model.x0_init=1", Shows::kSizes},
  };
}

Config config_of(const KeyCase& c, bool changed) {
  std::vector<std::string> sets{join("model.type=", c.family), "data.path=none"};
  for (const char* size :
       {"model.layers=2", "model.width=16", "model.heads=2", "model.context=16", "train.steps=6",
        "train.micro_batch=4", "train.batch_tokens=64", "optim.lr=0.01", "optim.warmup_steps=0"}) {
    sets.emplace_back(size);
  }
  const std::string family = c.family;
  if (family == "cmollm" || family == "parascale") sets.emplace_back("model.streams=4");
  if (family == "moep_msit") {
    sets.insert(sets.end(),
                {kMoepSizes, "model.expert_width=12", "model.expert_heads=2", "model.capacity=1"});
  }
  if (family == "kappa_moe") {
    sets.insert(sets.end(), {"model.experts=4", "model.moe_first=1", "optim.weight_decay=0"});
  }
  sets.insert(sets.end(), c.given.begin(), c.given.end());
  if (changed) sets.emplace_back(c.set);
  Config config = parse_config("schema: 1\n", "keys", sets);
  validate(config);
  return config;
}

struct Outcome {
  std::vector<double> parameters, gradient, later, routed;
  double loss = 0;
};

std::vector<double> parameters_of(Model& model) {
  std::vector<double> all;
  model.visit([&](Param& p) {
    const std::vector<double> values = test::values(p.value);
    all.insert(all.end(), values.begin(), values.end());
  });
  return all;
}

// Away from where they begin, where half of a model may be zero.
void disturb(Model& model) {
  uint64_t n = 0;
  model.visit([&](Param& p) {
    for (int64_t i = 0; i < p.value.count(); ++i) {
      const double uniform = philox(3, n++)[0] / 4294967296.0;
      p.value.data<float>()[i] += static_cast<float>(0.6 * uniform - 0.3);
    }
  });
}

// Four steps on two batches, then an evaluation routed as in training.
Outcome run(const Config& config) {
  constexpr int64_t kVocabulary = 40, kSteps = 4;
  const int64_t B = config.train.micro_batch, T = config.model.context;
  const auto model = make_model(config, kVocabulary);
  TrainingState state(*model, config, FlatStore::Options{}, nullptr);
  Outcome run;
  run.parameters = parameters_of(*model);
  disturb(*model);
  Measures measures(std::max<size_t>(model->measure_places(B), 1));
  for (int64_t step = 0; step <= kSteps; ++step) {
    Tensor ids({B, T}, DType::kI32), targets({B, T}, DType::kI32);
    for (int64_t i = 0; i < B * T; ++i) {
      const auto words = philox(7, static_cast<uint64_t>(i + step % 2 * B * T));
      ids.data<int32_t>()[i] = static_cast<int32_t>(words[0] % kVocabulary);
      targets.data<int32_t>()[i] = static_cast<int32_t>(words[1] % kVocabulary);
    }
    if (step == kSteps) {
      run.later = parameters_of(*model);
      run.routed = test::values(model->token_losses({ids, targets, 0}, Routing::kAsTrained));
      break;
    }
    state.store().forget_grads();
    std::ranges::fill(measures.sums(), 0.0);
    Tape tape;
    const Var y = model->loss(tape, {ids, targets, 0},
                              {1, step, &measures, static_cast<double>(step) / kSteps},
                              1.0 / static_cast<double>(B * T));
    tape.backward(y);
    const double norm = state.optimizer().grad_norm();
    if (step == 0) run.loss = test::values(y.value()).front(), run.gradient = {norm};
    state.optimizer().step(step, norm);
    model->end_step(measures);
  }
  return run;
}

Shows first_difference(const Outcome& a, const Outcome& b) {
  if (a.parameters != b.parameters) return Shows::kSizes;
  if (a.loss != b.loss) return Shows::kLoss;
  if (a.gradient != b.gradient) return Shows::kGradient;
  if (a.later != b.later) return Shows::kLater;
  if (a.routed != b.routed) return Shows::kTrainedRouting;
  return Shows::kRounding;
}

class FamilyKey : public testing::TestWithParam<KeyCase> {};

TEST_P(FamilyKey, ShowsWhereItSays) {
  const Outcome before = run(config_of(GetParam(), false)),
                after = run(config_of(GetParam(), true));
  if (GetParam().shows != Shows::kRounding) {
    EXPECT_EQ(first_difference(before, after), GetParam().shows);
    return;
  }
  EXPECT_EQ(before.parameters, after.parameters);
  EXPECT_NEAR(before.loss, after.loss, test::kLayouts.relative * before.loss);
}

INSTANTIATE_TEST_SUITE_P(All, FamilyKey, testing::ValuesIn(cases()));

// A new key is in the list above.
TEST(FamilyKeys, AllAreTried) {
  std::set<std::string> tried, keys;
  for (const KeyCase& c : cases()) {
    const std::string set = c.set;
    tried.insert(set.substr(0, set.find('=')));
  }
  const std::string table = config_table();
  const std::regex row("\\| `(model\\.[a-z0-9_]+)` [^\n]* -- [a-z0-9_, ]+ \\|");
  for (std::sregex_iterator i(table.begin(), table.end(), row), end; i != end; ++i) {
    keys.insert((*i)[1]);
  }
  EXPECT_GT(keys.size(), 50U);
  for (const std::string& key : keys) EXPECT_TRUE(tried.contains(key)) << key;
}

}  // namespace
}  // namespace anabranch
