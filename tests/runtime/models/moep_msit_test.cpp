#include "runtime/models/moep_msit.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "core/nn/init.h"
#include "runtime/config/validate_moep.h"
#include "runtime/config/validate_parallel.h"
#include "runtime/models/registry.h"
#include "tests/runtime/models/moep_case.h"

namespace anabranch {
namespace {

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
      MoepOptions o = test::options_of(ref_, name_, compute);
      o.recompute = recompute;
      return std::make_unique<MoepMsit>(o);
    };
    return {ref_, name_, make, type, config_};
  }

  void give_thresholds(Model& model) {
    if (ref_.count("has_threshold", name_) == 0) return;
    test::set_thresholds(model,
                         [&](const std::string& b) { return ref_.real(name_ + "/buffers/" + b); });
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
    test::expect_thresholds(c.model(), ref_, name_ + "/buffers_after/", test::kModelF64);
  }
}

TEST_P(MoepAgainstPyTorch, Steps) {
  const std::string name = name_;
  if (name != "ec_batch" && name != "token_choice") return;
  test::FamilyCase c = made(DType::kF64, false);
  c.expect_steps(test::kStepsF64);
  if (name == "ec_batch") {
    test::expect_thresholds(c.model(), ref_, name + "/steps/buffers_after/", test::kStepsF64);
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
    return std::make_unique<MoepMsit>(test::options_of(ref, "predictor", type));
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

struct Reach {
  bool past, others;
};

// What losses of earlier tokens and of other sequences any last token of sequence 1 changes.
Reach reach_of(Model& model, Routing routing) {
  const Tensor ids = test::some_ids();
  const auto losses = [&](const Tensor& inputs) {
    return test::values(model.token_losses({inputs, ids}, routing));
  };
  const auto before = losses(ids);
  Reach reach{false, false};
  bool itself = false;
  for (int32_t other = 1; other < test::kV; ++other) {
    Tensor edited = ids.clone();
    int32_t& token = edited.data<int32_t>()[2 * test::kT - 1];
    token = (token + other) % static_cast<int32_t>(test::kV);
    const auto after = losses(edited);
    for (int64_t n = 0; n < test::kB * test::kT; ++n) {
      const auto i = static_cast<size_t>(n);
      if (std::abs(after[i] - before[i]) <= 1e-9) continue;
      itself |= n == 2 * test::kT - 1;
      reach.past |= n / test::kT == 1 && n < 2 * test::kT - 1;
      reach.others |= n / test::kT != 1;
    }
  }
  EXPECT_TRUE(itself);
  return reach;
}

TEST(MoepMsit, OnlyExpertChoiceAsTrainedLooksAhead) {
  for (const Selection select : {Selection::kEcBatch, Selection::kEcSeq, Selection::kThreshold,
                                 Selection::kPredictor, Selection::kTokenChoice}) {
    const auto model = test::random_model(select);
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
    const auto model = test::random_model(select, keys);
    const Reach trained = reach_of(*model, Routing::kAsTrained);
    EXPECT_TRUE(trained.past && trained.others && model->looks_ahead());
    const Reach causal = reach_of(*model, Routing::kCausal);
    EXPECT_FALSE(causal.past || causal.others);
  }
  const Config mended = parse_config(reference + ", order: time, segments: sequence}", "c.yaml");
  const auto model = test::random_model(Selection::kThreshold, mended.model.moep);
  EXPECT_FALSE(reach_of(*model, Routing::kAsTrained).past || model->looks_ahead());
}

// -log p of each target from logits that decode gave token by token.
TEST(MoepMsit, DecodingIsCausalEvaluation) {
  for (const Selection select :
       {Selection::kEcBatch, Selection::kPredictor, Selection::kTokenChoice}) {
    const auto model = test::random_model(select);
    const Tensor ids = test::some_ids();
    const auto want = test::values(model->token_losses({ids, ids}, Routing::kCausal));
    DecodeState state = model->decode_state(test::kB, test::kT);
    const std::vector<int64_t> one(test::kB, 1);
    for (int64_t t = 0; t < test::kT; ++t) {
      Tensor next({test::kB, 1}, DType::kI32);
      for (int64_t b = 0; b < test::kB; ++b) {
        next.data<int32_t>()[b] = ids.data<int32_t>()[b * test::kT + t];
      }
      const auto logits = test::values(model->decode(next, one, state));
      for (int64_t b = 0; b < test::kB; ++b) {
        const double* row = logits.data() + b * test::kV;
        double sum = 0;
        for (int64_t v = 0; v < test::kV; ++v) sum += std::exp(row[v]);
        EXPECT_NEAR(std::log(sum) - row[next.data<int32_t>()[b]],
                    want[static_cast<size_t>(b * test::kT + t)], 1e-9);
      }
    }
  }
}

// Two micro-batches of one pool each are a step of two pools, in any order.
TEST(MoepMsit, PoolsOfAStepMoveThresholdsInTheirOrder) {
  const Tensor first = test::some_ids();
  Tensor second = first.clone();
  for (int32_t& id : second.span<int32_t>()) id = (id + 5) % static_cast<int32_t>(test::kV);
  std::vector<std::vector<double>> after;
  for (const bool reversed : {false, true}) {
    const auto model = test::random_model(Selection::kEcBatch);
    model->visit_buffers([](Buffer& b) { b.value.fill_zero(); });
    Measures measures(model->measure_places(2 * test::kB));
    for (const bool is_second : {reversed, !reversed}) {
      Tape tape;
      model->loss(tape, {is_second ? second : first, first, (is_second ? 3 : 2) * test::kB},
                  {1, 0, &measures}, 1.0 / (2 * test::kB * test::kT));
    }
    model->end_step(measures);
    std::vector<double>& all = after.emplace_back();
    model->visit_buffers([&](Buffer& b) {
      for (const double v : test::values(b.value)) all.push_back(v);
      if (!test::is_threshold(b)) {
        EXPECT_EQ(*b.value.data<double>(), 2);
      }
    });
    // theta = decay kth_0 + (1 - decay) kth_1 of the first layer and expert
    const size_t scores = ChoiceMeasures(2, 3).places();
    EXPECT_DOUBLE_EQ(all[0], 0.99 * measures.at(scores) + (1 - 0.99) * measures.at(scores + 6));
  }
  EXPECT_EQ(after[0], after[1]);
}

TEST(MoepMsit, TrainsInBf16) {
  const Tensor ids = test::some_ids();
  for (const Selection select : {Selection::kEcBatch, Selection::kEcSeq, Selection::kThreshold,
                                 Selection::kPredictor, Selection::kTokenChoice}) {
    std::vector<double> losses, others;
    for (const DType type : {DType::kF64, DType::kBF16}) {
      const auto model = test::random_model(select, {}, type);
      Measures measures(model->measure_places(test::kB));
      Tape tape;
      const Var loss =
          model->loss(tape, {ids, ids, 0}, {1, 0, &measures}, 1.0 / (test::kB * test::kT));
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
  const auto model = test::random_model(Selection::kEcBatch);
  const Tensor two = test::some_ids().view(0, {2, test::kT});
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
    const auto model = test::random_model(select, keys);
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
  EXPECT_EQ(check_moep(model).size(), 4U);  // and no capacity fits no experts
  model.moep.expert_heads = 128;            // heads of width 3
  model.moep.windows = {4};
  EXPECT_EQ(check_moep(model).size(), 3U);
}

// Experts that attend over a pool need all of it.
TEST(MoepMsit, PoolsThatAttendLieOnOneRank) {
  Config config;
  config.model.type = ModelType::kMoepMsit;
  config.model.moep.segments = SegmentScope::kPool;
  config.model.moep.pool_sequences = 4;
  config.train.micro_batch = 4;
  EXPECT_TRUE(check_segments(config).empty());
  EXPECT_EQ(legal_model_sizes(config, 4), std::vector<int>{1});  // for `auto` and plans too
  config.parallel.model.value = 2;
  EXPECT_EQ(check_segments(config).size(), 1U);
  config.parallel.model.value = 1;
  config.train.micro_batch = 2;
  EXPECT_EQ(check_segments(config).size(), 1U);
  config.model.moep.select = Selection::kEcSeq;  // every sequence a pool
  EXPECT_TRUE(check_segments(config).empty());
}

}  // namespace
}  // namespace anabranch
