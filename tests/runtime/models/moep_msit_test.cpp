#include "runtime/models/moep_msit.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "core/nn/init.h"
#include "runtime/config/validate_moep.h"
#include "runtime/models/registry.h"
#include "tests/runtime/models/family_case.h"

namespace anabranch {
namespace {

SlotPosition position_of(const std::string& word) {
  return word == "compact" ? SlotPosition::kCompact : SlotPosition::kOriginal;
}

Selection selection_of(const std::string& word) {
  if (word == "ec_seq") return Selection::kEcSeq;
  if (word == "threshold") return Selection::kThreshold;
  if (word == "predictor") return Selection::kPredictor;
  return word == "token_choice" ? Selection::kTokenChoice : Selection::kEcBatch;
}

MoepOptions options_of(const test::Reference& ref, const std::string& name, DType type) {
  MoepOptions o;
  o.layers = ref.count("n_layer", name);
  o.width = ref.count("n_embd", name);
  o.heads = ref.count("n_head", name);
  o.context = ref.count("context", name);
  o.vocabulary = ref.count("vocab_size", name);
  o.ffn_width = ref.count("ffn", name);
  o.expert_ffn_width = ref.count("expert_ffn", name);
  o.compute = type;
  o.keys.windows = {5, 3, 2};
  o.keys.expert_width = ref.count("expert_width", name);
  o.keys.expert_heads = ref.count("expert_heads", name);
  o.keys.capacity = ref.number("capacity", name);
  o.keys.select = selection_of(ref.text("select", name));
  o.keys.pool_sequences = ref.count("batch", name);
  o.keys.order = ref.text("order", name) == "affinity" ? SlotOrder::kAffinity : SlotOrder::kTime;
  o.keys.segments =
      ref.text("segments", name) == "pool" ? SegmentScope::kPool : SegmentScope::kSequence;
  o.keys.rope_position = position_of(ref.text("rope_position", name));
  o.keys.window = position_of(ref.text("window", name));
  o.keys.windowed = ref.text("window", name) != "none";
  o.keys.aux_alpha = ref.number("balance_weight", name);
  o.keys.predictor_weight = ref.number("predictor_weight", name);
  o.keys.threshold_decay = ref.number("threshold_decay", name);
  return o;
}

bool is_threshold(const Buffer& b) { return b.name.ends_with("threshold"); }

// Thresholds that some pools have moved already.
void set_thresholds(Model& model, const std::function<Tensor(const std::string&)>& of) {
  model.visit_buffers([&](Buffer& b) {
    b.value.copy_from(is_threshold(b) ? of(b.name) : Tensor::of<double>({1}, {1}));
  });
}

void expect_thresholds(Model& model, const test::Reference& ref, const std::string& group,
                       test::Tolerance tolerance) {
  model.visit_buffers([&](Buffer& b) {
    if (is_threshold(b)) {
      test::expect_close(b.value, ref.real(group + b.name), tolerance, b.name.c_str());
    }
  });
}

struct Recorded {
  const char *file, *name;
};

class MoepAgainstPyTorch : public testing::TestWithParam<Recorded> {
 protected:
  const test::Reference ref_{GetParam().file};
  const std::string name_ = GetParam().name;
  Config config_ = [] {
    Config config = test::adamw_of_references();
    config.optim.beta2 = 0.999;
    return config;
  }();

  test::FamilyCase made(DType type, bool recompute) {
    const auto make = [&](DType compute) {
      MoepOptions o = options_of(ref_, name_, compute);
      o.recompute = recompute;
      return std::make_unique<MoepMsit>(o);
    };
    return {ref_, name_, make, type, config_};
  }

  void give_thresholds(Model& model) {
    if (ref_.count("has_threshold", name_) == 0) return;
    set_thresholds(model, [&](const std::string& b) { return ref_.real(name_ + "/buffers/" + b); });
  }
};

TEST_P(MoepAgainstPyTorch, LossesAndGradients) {
  for (const DType type : {DType::kF64, DType::kF32}) {
    for (const bool recompute : {false, true}) {
      test::FamilyCase c = made(type, recompute);
      EXPECT_EQ(c.model().cost().parameters, ref_.count("n_parameters", name_));
      give_thresholds(c.model());
      c.expect_all();
    }
  }
}

TEST_P(MoepAgainstPyTorch, ThresholdsFollowThePool) {
  const std::string select = ref_.text("select", name_);
  if (std::string(GetParam().file) != "moep.h5") return;
  if (select != "ec_batch" && select != "threshold") return;
  for (const bool recompute : {false, true}) {
    test::FamilyCase c = made(DType::kF64, recompute);
    give_thresholds(c.model());
    const Tensor tokens = ref_.integers(name_ + "/tokens");
    Measures measures(c.model().measure_places(tokens.dim(0)));
    Tape tape;
    const Var loss = c.model().loss(tape, {tokens, ref_.integers(name_ + "/targets"), 3},
                                    {1, 0, &measures}, 1.0 / 27);
    tape.backward(loss);
    c.model().end_step(measures);
    expect_thresholds(c.model(), ref_, name_ + "/buffers_after/", test::kModelF64);
  }
}

TEST_P(MoepAgainstPyTorch, Steps) {
  const std::string name = name_;
  if (name != "ec_batch" && name != "token_choice") return;
  test::FamilyCase c = made(DType::kF64, false);
  c.expect_steps(test::kStepsF64);
  if (name == "ec_batch") {
    expect_thresholds(c.model(), ref_, name + "/steps/buffers_after/", test::kStepsF64);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Cases, MoepAgainstPyTorch,
    testing::Values(
        Recorded{"moep.h5", "ec_batch"}, Recorded{"moep.h5", "token_choice"},
        Recorded{"moep.h5", "threshold"}, Recorded{"moep.h5", "predictor"},
        Recorded{"moep_options.h5", "ec_seq"}, Recorded{"moep_options.h5", "token_choice_top2"},
        Recorded{"moep_options.h5", "capacity_1"}, Recorded{"moep_options.h5", "window_compact"},
        Recorded{"moep_options.h5", "window_none"}, Recorded{"moep_options.h5", "rope_compact"},
        Recorded{"moep_options.h5", "segments_pool"}, Recorded{"moep_options.h5", "compat"}),
    [](const auto& param) { return std::string(param.param.name); });

TEST(MoepMsit, EvaluationAsksThePredictor) {
  const test::Reference ref("moep.h5");
  const Config config = test::adamw_of_references();
  const auto make = [&](DType type) {
    return std::make_unique<MoepMsit>(options_of(ref, "predictor", type));
  };
  test::FamilyCase c(ref, "predictor", make, DType::kF64, config);
  const Tensor targets = ref.integers("predictor/targets");
  const auto logits = test::values(ref.real("predictor/eval_logits"));
  const int64_t V = ref.count("vocab_size", "predictor");
  std::vector<double> want;
  for (int64_t n = 0; n < targets.count(); ++n) {
    const double* row = logits.data() + n * V;
    double sum = 0;
    for (int64_t v = 0; v < V; ++v) sum += std::exp(row[v]);
    want.push_back(std::log(sum) - row[targets.data<int32_t>()[n]]);
  }
  for (const Routing routing : {Routing::kCausal, Routing::kAsTrained}) {
    const Tensor got = c.model().token_losses({ref.integers("predictor/tokens"), targets}, routing);
    test::expect_near(got, want, test::kModelF64, "losses");
  }
}

constexpr int64_t kB = 3, kT = 9, kV = 17;

std::unique_ptr<Model> random_model(Selection select, const MoepKeys& keys = {},
                                    DType type = DType::kF64) {
  MoepOptions o;
  o.layers = 2, o.width = 8, o.heads = 2, o.context = kT, o.vocabulary = kV;
  o.ffn_width = 10, o.expert_ffn_width = 6;
  o.compute = type;
  o.keys = keys;
  o.keys.windows = {5, 3, 2};
  o.keys.expert_width = 12, o.keys.expert_heads = 3;
  o.keys.capacity = 1;
  o.keys.select = select;
  o.keys.pool_sequences = kB;
  auto model = std::make_unique<MoepMsit>(o);
  model->visit([&](Param& w) {
    allocate(w, accumulator_of(type));
    if (w.init.kind == Init::Kind::kNormal) w.init.value = 0.4F;
    initialise(w, 7);
  });
  set_thresholds(*model, [](const auto&) { return Tensor::of<double>({3}, {0.3, 0.35, 0.32}); });
  return model;
}

Tensor some_ids() {
  Tensor ids({kB, kT}, DType::kI32);
  for (int64_t i = 0; i < ids.count(); ++i) {
    ids.data<int32_t>()[i] = static_cast<int32_t>((i * i + 5 * i + 3) % kV);
  }
  return ids;
}

struct Reach {
  bool past, others;
};

// What losses of earlier tokens and of other sequences any last token of sequence 1 changes.
Reach reach_of(Model& model, Routing routing) {
  const Tensor ids = some_ids();
  const auto losses = [&](const Tensor& inputs) {
    return test::values(model.token_losses({inputs, ids}, routing));
  };
  const auto before = losses(ids);
  Reach reach{false, false};
  bool itself = false;
  for (int32_t other = 1; other < kV; ++other) {
    Tensor edited = ids.clone();
    int32_t& token = edited.data<int32_t>()[2 * kT - 1];
    token = (token + other) % static_cast<int32_t>(kV);
    const auto after = losses(edited);
    for (int64_t n = 0; n < kB * kT; ++n) {
      const auto i = static_cast<size_t>(n);
      if (std::abs(after[i] - before[i]) <= 1e-9) continue;
      itself |= n == 2 * kT - 1;
      reach.past |= n / kT == 1 && n < 2 * kT - 1;
      reach.others |= n / kT != 1;
    }
  }
  EXPECT_TRUE(itself);
  return reach;
}

TEST(MoepMsit, OnlyExpertChoiceAsTrainedLooksAhead) {
  for (const Selection select : {Selection::kEcBatch, Selection::kEcSeq, Selection::kThreshold,
                                 Selection::kPredictor, Selection::kTokenChoice}) {
    const auto model = random_model(select);
    const bool ahead = select == Selection::kEcBatch || select == Selection::kEcSeq;
    const Reach trained = reach_of(*model, Routing::kAsTrained);
    EXPECT_EQ(trained.past, ahead) << static_cast<int>(select);
    EXPECT_EQ(trained.others, select == Selection::kEcBatch) << static_cast<int>(select);
    EXPECT_EQ(model->looks_ahead(), ahead);
    const Reach causal = reach_of(*model, Routing::kCausal);
    EXPECT_FALSE(causal.past) << static_cast<int>(select);
    EXPECT_FALSE(causal.others) << static_cast<int>(select);
  }
}

// The reference leaks by its order too, whoever chooses; a key beside the shorthand mends it.
TEST(MoepMsit, TheReferenceIsCausalOnlyWhenAsked) {
  const std::string reference = "model: {type: moep_msit, compat: reference";
  for (const Selection select : {Selection::kEcBatch, Selection::kThreshold}) {
    const MoepKeys keys = parse_config(reference + "}", "c.yaml").model.moep;
    const auto model = random_model(select, keys);
    const Reach trained = reach_of(*model, Routing::kAsTrained);
    EXPECT_TRUE(trained.past && trained.others && model->looks_ahead());
    const Reach causal = reach_of(*model, Routing::kCausal);
    EXPECT_FALSE(causal.past || causal.others);
  }
  const Config mended = parse_config(reference + ", order: time, segments: sequence}", "c.yaml");
  const auto model = random_model(Selection::kThreshold, mended.model.moep);
  EXPECT_FALSE(reach_of(*model, Routing::kAsTrained).past || model->looks_ahead());
}

// -log p of each target from logits that decode gave token by token.
TEST(MoepMsit, DecodingIsCausalEvaluation) {
  for (const Selection select :
       {Selection::kEcBatch, Selection::kPredictor, Selection::kTokenChoice}) {
    const auto model = random_model(select);
    const Tensor ids = some_ids();
    const auto want = test::values(model->token_losses({ids, ids}, Routing::kCausal));
    DecodeState state = model->decode_state(kB, kT);
    const std::vector<int64_t> one(kB, 1);
    for (int64_t t = 0; t < kT; ++t) {
      Tensor next({kB, 1}, DType::kI32);
      for (int64_t b = 0; b < kB; ++b) {
        next.data<int32_t>()[b] = ids.data<int32_t>()[b * kT + t];
      }
      const auto logits = test::values(model->decode(next, one, state));
      for (int64_t b = 0; b < kB; ++b) {
        const double* row = logits.data() + b * kV;
        double sum = 0;
        for (int64_t v = 0; v < kV; ++v) sum += std::exp(row[v]);
        EXPECT_NEAR(std::log(sum) - row[next.data<int32_t>()[b]],
                    want[static_cast<size_t>(b * kT + t)], 1e-9);
      }
    }
  }
}

// Two micro-batches of one pool each are a step of two pools, in any order.
TEST(MoepMsit, PoolsOfAStepMoveThresholdsInTheirOrder) {
  const Tensor first = some_ids();
  Tensor second = first.clone();
  for (int32_t& id : second.span<int32_t>()) id = (id + 5) % static_cast<int32_t>(kV);
  std::vector<std::vector<double>> after;
  for (const bool reversed : {false, true}) {
    const auto model = random_model(Selection::kEcBatch);
    model->visit_buffers([](Buffer& b) { b.value.fill_zero(); });
    Measures measures(model->measure_places(2 * kB));
    for (const bool is_second : {reversed, !reversed}) {
      Tape tape;
      model->loss(tape, {is_second ? second : first, first, (is_second ? 3 : 2) * kB},
                  {1, 0, &measures}, 1.0 / (2 * kB * kT));
    }
    model->end_step(measures);
    std::vector<double>& all = after.emplace_back();
    model->visit_buffers([&](Buffer& b) {
      for (const double v : test::values(b.value)) all.push_back(v);
      if (!is_threshold(b)) {
        EXPECT_EQ(*b.value.data<double>(), 2);
      }
    });
    // theta = decay kth_0 + (1 - decay) kth_1 of the first layer and expert
    EXPECT_DOUBLE_EQ(all[0], 0.99 * measures.at(1) + (1 - 0.99) * measures.at(1 + 6));
  }
  EXPECT_EQ(after[0], after[1]);
}

TEST(MoepMsit, TrainsInBf16) {
  const Tensor ids = some_ids();
  for (const Selection select : {Selection::kEcBatch, Selection::kEcSeq, Selection::kThreshold,
                                 Selection::kPredictor, Selection::kTokenChoice}) {
    std::vector<double> losses, others;
    for (const DType type : {DType::kF64, DType::kBF16}) {
      const auto model = random_model(select, {}, type);
      Measures measures(model->measure_places(kB));
      Tape tape;
      const Var loss = model->loss(tape, {ids, ids, 0}, {1, 0, &measures}, 1.0 / (kB * kT));
      tape.backward(loss);
      losses.push_back(test::values(loss.value()).front());
      others.push_back(measures.at(0));
    }
    EXPECT_NEAR(losses[1], losses[0], 0.1 * losses[0]) << static_cast<int>(select);
    EXPECT_NEAR(others[1], others[0], 0.1 * others[0]) << static_cast<int>(select);
    EXPECT_EQ(others[0] > 0, select == Selection::kPredictor || select == Selection::kTokenChoice);
  }
}

TEST(MoepMsit, RefusesABatchThatIsNotWholePools) {
  const auto model = random_model(Selection::kEcBatch);
  const Tensor two = some_ids().view(0, {2, kT});
  try {
    model->logits(two);
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("model.pool_sequences 3"), std::string::npos);
  }
  EXPECT_NO_THROW(model->token_losses({two, two}, Routing::kCausal));
}

TEST(MoepMsit, ThePresetHasThePaperSize) {
  Config config;
  apply_preset(config.model, "moep-msit");
  fill_sizes(config.model);
  const auto model = make_model(config, 16384);
  const ModelCost cost = model->cost();
  EXPECT_EQ(cost.non_embedding_parameters, 48430592);
  EXPECT_EQ(cost.parameters, 52624896);
  int64_t counted = 0;
  model->visit([&](const Param& w) { counted += w.shape.count(); });
  EXPECT_EQ(counted, cost.parameters);
  EXPECT_DOUBLE_EQ(cost.linear_macs + cost.front_end_macs, 6 * 4619264.0 + 16384 * 256);
  EXPECT_DOUBLE_EQ(cost.attention_macs, 6 * 166656.0);
}

TEST(MoepMsit, CountsWhatOptionsChange) {
  for (const Selection select : {Selection::kPredictor, Selection::kTokenChoice}) {
    MoepKeys keys;
    keys.global_block = false;
    const auto model = random_model(select, keys);
    int64_t counted = 0;
    model->visit([&](const Param& w) { counted += w.shape.count(); });
    EXPECT_EQ(counted, model->cost().parameters);
    reach_of(*model, Routing::kCausal);
  }
}

TEST(MoepMsit, KeysMustAgree) {
  ModelConfig model;
  apply_preset(model, "moep-msit");
  EXPECT_TRUE(check_moep(model).empty());
  model.moep.windows = {};
  model.moep.expert_heads = 5;
  model.moep.order = SlotOrder::kAffinity;
  model.moep.causal_ratio = 0.5;
  EXPECT_EQ(check_moep(model).size(), 5U);  // and no capacity fits no experts
  model.moep.expert_heads = 128;            // heads of width 3
  model.moep.windows = {4};
  EXPECT_EQ(check_moep(model).size(), 4U);
}

}  // namespace
}  // namespace anabranch
