// train.deterministic layout: the same run bit by bit, whatever ranks, however streams, experts and
// optimizer state lie over them.
//
// AB_STEPS sets the steps; 50 of them are a test of their own, with the label slow.
#include <cstdlib>

#include <gtest/gtest.h>

#include "runtime/config/validate.h"
#include "tests/runtime/training.h"
#include "tests/support/checkpoints.h"

namespace anabranch {
namespace {

constexpr int64_t kSequences = 24;  // of a step: each lane gets 3

struct Layout {
  int ranks, model = 1;
  int64_t zero = 0;
};

struct Family {
  const char* name;
  void (*set)(Config& config);
  std::vector<Layout> layouts;
};

void streams(Config& c) {
  c.model.type = ModelType::kCmollm;
  c.model.cmollm.streams = 8;
}

void token_choice(Config& c) {
  c.model.type = ModelType::kKappaMoe;
  c.model.kappa.experts = 8;
  c.model.kappa.top_k = 3;
  c.model.kappa.moe_first = 1;
}

void expert_choice(Config& c) {
  c.model.type = ModelType::kMoepMsit;
  c.model.moep.dropout = 0.1;
  c.model.moep.windows = {5, 3, 7, 2};
  c.model.moep.expert_width = 12;
  c.model.moep.expert_heads = 2;
  c.model.moep.capacity = 2.5;
  c.model.ffn_width = 0;
}

void matrices(Config& c, MatrixOptimizer matrix) {
  c.optim.matrix = matrix;
  c.optim.matrix_lr = 0.02;
}

const std::vector<Layout> kData = {{2}, {2, 1, 1}, {4}, {8}, {8, 1, 1}};
const std::vector<Layout> kSplitBy4 = {{2},       {8, 1, 1}, {2, 2}, {4, 2},
                                       {4, 4, 1}, {8, 2, 1}, {8, 4}};
const std::vector<Layout> kSplitBy8 = {{2},       {4, 1, 1}, {2, 2},    {4, 2, 1},
                                       {4, 4, 1}, {8, 2},    {8, 4, 1}, {8, 8}};

const Family kFamilies[] = {
    {"gpt2", [](Config& c) { c.model.gpt2.dropout = 0.1; }, kData},
    {"gpt2_fp64", [](Config& c) { c.train.precision = Precision::kFp64; }, {{2}, {8, 1, 1}}},
    {"gpt2_recompute",
     [](Config& c) {
       c.model.recompute = true;
       c.optim.clip = 0.1;
     },
     {{4}}},
    {"gpt2_muon", [](Config& c) { matrices(c, MatrixOptimizer::kMuon); }, kData},
    {"parascale",
     [](Config& c) {
       c.model.type = ModelType::kParascale;
       c.model.parascale.streams = 2;
       c.model.parascale.prefix = 3;
     },
     {{2}, {8, 1, 1}}},
    {"altup", [](Config& c) { c.model.type = ModelType::kAltup; }, {{4}, {8, 1, 1}}},
    {"cmollm", streams, kSplitBy8},
    {"cmollm_feature_adaptive",
     [](Config& c) {
       streams(c);
       c.model.cmollm.variant = GateVariant::kAdaptive;
       c.model.cmollm.gate_site = GateSite::kFeature;
       c.model.cmollm.mix_order = MixOrder::kBranch;
       c.model.recompute = true;
     },
     {{2, 2}, {8, 4, 1}}},
    {"cmollm_post",
     [](Config& c) {
       streams(c);
       c.model.cmollm.mix = MixPoint::kPost;
     },
     {{2, 2}, {8, 8, 1}}},
    {"cmollm_aurora",
     [](Config& c) {
       streams(c);
       matrices(c, MatrixOptimizer::kAurora);
     },
     {{2, 2}, {8, 2, 1}}},
    {"cmollm_pipeline",
     [](Config& c) {
       c.model.type = ModelType::kCmollm;
       c.model.cmollm.mode = StreamMode::kPipeline;
       c.model.cmollm.streams = 2;
     },
     {{2}, {8, 1, 1}}},
    {"kappa", token_choice, kSplitBy8},
    {"kappa_capacity",
     [](Config& c) {
       token_choice(c);
       c.model.kappa.capacity_train = 1;
       c.model.recompute = true;
     },
     {{4, 2}, {8, 8, 1}}},
    {"kappa_muon",
     [](Config& c) {
       token_choice(c);
       matrices(c, MatrixOptimizer::kMuon);
     },
     {{4, 1, 1}, {4, 2}, {8, 4, 1}}},
    {"kappa_aurora",
     [](Config& c) {
       token_choice(c);
       matrices(c, MatrixOptimizer::kAurora);
       c.optim.clip = 0;
     },
     {{4, 2}, {8, 4, 1}}},
    {"moep", expert_choice, kSplitBy4},
    {"moep_by_affinity",
     [](Config& c) {
       expert_choice(c);
       c.model.moep.order = SlotOrder::kAffinity;
       c.model.moep.windowed = false;
     },
     {{2, 2}, {8, 4, 1}}},
    {"moep_threshold",
     [](Config& c) {
       expert_choice(c);
       c.model.moep.select = Selection::kThreshold;
     },
     kSplitBy4},
    {"moep_token_choice",
     [](Config& c) {
       expert_choice(c);
       c.model.moep.select = Selection::kTokenChoice;
     },
     kSplitBy4},
};

int64_t steps() {
  const char* text = std::getenv("AB_STEPS");
  return text != nullptr ? std::atoll(text) : 3;
}

class AnyLayout : public testing::TestWithParam<Family> {
 protected:
  [[nodiscard]] Config config(const Layout& layout, Determinism deterministic) const {
    Config c = folder_.config(
        join(layout.ranks, "-", layout.model, "-", layout.zero, "-", word_of(deterministic)),
        steps());
    c.train.batch_tokens = c.model.context * kSequences;
    c.train.deterministic = deterministic;
    c.parallel.model.value = layout.model;
    c.parallel.zero = layout.zero;
    GetParam().set(c);
    fill_derived(c);
    validate(c);
    return c;
  }

  [[nodiscard]] Config config(const Layout& layout) const {
    return config(layout, Determinism::kLayout);
  }

  const test::TrainingFolder folder_{true};
};

std::vector<double> norms(const test::Training& run) {
  std::vector<double> all;
  for (const StepReport& report : run.steps.front()) all.push_back(report.grad_norm);
  return all;
}

TEST_P(AnyLayout, IsThatOfOneRankBitByBit) {
  const Config one = config({1});
  const test::Training alone = test::run_training(one);
  const auto tensors = test::checkpoint_tensors(one.run.dir, steps());
  ASSERT_EQ(alone.losses().size(), static_cast<size_t>(steps()));
  for (const Layout& layout : GetParam().layouts) {
    SCOPED_TRACE(join(layout.ranks, " ranks, model ", layout.model, ", zero ", layout.zero));
    const Config c = config(layout);
    const test::Training run = test::run_training(c, {.ranks = layout.ranks});
    EXPECT_EQ(run.losses(), alone.losses());
    EXPECT_EQ(norms(run), norms(alone));
    for (const auto& [name, bytes] : test::checkpoint_tensors(c.run.dir, steps())) {
      EXPECT_TRUE(tensors.at(name) == bytes) << name;
    }
  }
}

// Without it the same layouts differ: what is compared would show it.
TEST_P(AnyLayout, IsAskedFor) {
  Layout layout = GetParam().layouts.back();
  const test::Training alone = test::run_training(config({1}, Determinism::kRun));
  const test::Training run =
      test::run_training(config(layout, Determinism::kRun), {.ranks = layout.ranks});
  EXPECT_NE(norms(run), norms(alone));
}

INSTANTIATE_TEST_SUITE_P(All, AnyLayout, testing::ValuesIn(kFamilies),
                         [](const auto& f) { return std::string(f.param.name); });

// A checkpoint of one layout goes on on another as if the run had never stopped.
TEST(AnyLayoutResumed, IsTheRunThatNeverStopped) {
  const test::TrainingFolder folder;
  const auto config = [&](const char* name, int64_t model, int64_t zero) {
    Config c = folder.config(name, 6);
    c.train.batch_tokens = c.model.context * kSequences;
    c.train.deterministic = Determinism::kLayout;
    token_choice(c);
    c.parallel.model.value = model;
    c.parallel.zero = zero;
    fill_derived(c);
    return c;
  };
  const test::Training whole = test::run_training(config("whole", 1, 0));
  test::run_training(config("parts", 4, 1),
                     {.ranks = 8, .after_step = [](int, int64_t step, StopRequest& stop) {
                        if (step == 3) stop.raise(StopKind::kRequeue);
                      }});
  const test::Training rest = test::run_training(config("parts", 2, 0), {.ranks = 2});
  const std::vector<double> all = whole.losses(), last = rest.losses();
  ASSERT_TRUE(!last.empty() && last.size() < all.size());
  EXPECT_EQ(last, std::vector<double>(all.end() - std::ssize(last), all.end()));
  for (const std::string& event : rest.events) {
    EXPECT_EQ(event.find("not bit-exact"), std::string::npos) << event;
  }
}

}  // namespace
}  // namespace anabranch
