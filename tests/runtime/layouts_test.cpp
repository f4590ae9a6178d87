// The same run on every layout: whatever ranks, however streams, experts, pools and optimizer state
// lie over them, the losses are those of one rank.
//
// In float64, so that hardly a choice of an expert is decided by rounding; the kernels' other types
// have their own tests.
#include <gtest/gtest.h>

#include "tests/runtime/training.h"
#include "tests/support/tolerance.h"

namespace anabranch {
namespace {

constexpr int64_t kSequences = 24;  // of a step: 1, 2, 3, 4, 6 and 8 ranks share them
constexpr int64_t kPool = 8;

struct Layout {
  int ranks, model;
  int64_t micro_batch;
  StreamLayoutChoice streams = StreamLayoutChoice::kAuto;
  int64_t zero = 0;
};

struct Family {
  const char* name;
  void (*set)(Config& config);
  std::vector<Layout> layouts;
};

constexpr auto kAuto = StreamLayoutChoice::kAuto;
constexpr auto kGather = StreamLayoutChoice::kGather;
constexpr auto kSlice = StreamLayoutChoice::kSlice;

void streams(Config& c) {
  c.model.type = ModelType::kCmollm;
  c.model.cmollm.streams = 4;
}

void copies(Config& c) {
  streams(c);
  c.model.cmollm.mode = StreamMode::kPipeline;
}

void token_choice(Config& c) {
  c.model.type = ModelType::kKappaMoe;
  c.model.kappa.experts = 4;
  c.model.kappa.moe_first = 1;
  c.model.kappa.pool_sequences = kPool;
  c.optim.weight_decay = 0;
}

// The small vocabulary makes rows that are equal but for rounding ("aa" and "a" have one state),
// and luck would say which of them an expert takes. Dropout, which goes by a row's place in the
// run, tells them apart.
void expert_choice(Config& c) {
  c.model.type = ModelType::kMoepMsit;
  c.model.moep.dropout = 0.1;
  c.model.moep.windows = {5, 3, 7, 2};
  c.model.moep.expert_width = 12;
  c.model.moep.expert_heads = 2;
  c.model.moep.capacity = 1;
  c.model.moep.pool_sequences = kPool;
  c.model.ffn_width = 0;
}

// A pool of 8 sequences: on one rank, or on as many as share it.
const std::vector<Layout> kPools = {{2, 1, 4}, {2, 2, 4}, {3, 1, 8},
                                    {3, 3, 8}, {4, 1, 2}, {4, 2, 2, kAuto, 1},
                                    {4, 4, 2}, {8, 4, 1}, {8, 2, 1, kAuto, 1}};

const Family kFamilies[] = {
    {"gpt2",
     [](Config& /*c*/) {},
     {{2, 1, 4}, {3, 1, 2, kAuto, 1}, {4, 1, 3}, {8, 1, 1, kAuto, 1}}},
    {"cmollm_linear",
     streams,
     {{2, 2, 4, kGather},
      {3, 3, 4, kGather},
      {4, 2, 3, kGather},
      {4, 4, 3, kGather},
      {8, 4, 3, kGather},
      {2, 2, 4, kSlice},
      {4, 4, 3, kSlice},
      {8, 8, 1, kSlice},
      {8, 2, 1, kSlice, 1},
      {4, 2, 3, kGather, 1}}},
    {"cmollm_feature_adaptive",
     [](Config& c) {
       streams(c);
       c.model.cmollm.variant = GateVariant::kAdaptive;
       c.model.cmollm.gate_site = GateSite::kFeature;
     },
     {{2, 2, 4, kGather}, {4, 4, 3, kSlice}}},
    {"cmollm_post",
     [](Config& c) {
       streams(c);
       c.model.cmollm.mix = MixPoint::kPost;
     },
     {{2, 2, 4, kGather}, {4, 2, 3, kGather}}},
    {"cmollm_pipeline",
     copies,
     {{2, 2, 4},
      {3, 3, 4},
      {4, 2, 3},
      {4, 4, 3, kAuto, 1},
      {8, 4, 1},
      {8, 2, 3, kAuto, 1},
      {2, 1, 4, kAuto, 1}}},
    {"cmollm_pipeline_spans",
     [](Config& c) {
       copies(c);
       c.model.cmollm.streams = 3;
       c.model.cmollm.span = 1;
       c.model.cmollm.agg = Aggregator::kLinear;
       c.model.cmollm.variant = GateVariant::kAdaptive;
       c.data.document_mask = true;
     },
     {{2, 2, 4}, {3, 3, 4}, {4, 2, 3, kAuto, 1}, {6, 3, 2}}},
    {"cmollm_pipeline_aurora",
     [](Config& c) {
       copies(c);
       c.optim.matrix = MatrixOptimizer::kAurora;
       c.optim.matrix_lr = 0.02;
       c.optim.clip = 0;
     },
     {{2, 2, 4}, {3, 3, 4}, {4, 2, 3, kAuto, 1}}},
    {"parascale",
     [](Config& c) {
       c.model.type = ModelType::kParascale;
       c.model.parascale = {4, 3, 0.01};
     },
     {{2, 2, 4}, {3, 3, 4, kAuto, 1}, {4, 2, 3}, {4, 4, 3, kAuto, 1}, {8, 4, 1}, {8, 2, 3}}},
    {"kappa", token_choice, kPools},
    {"kappa_capacity",
     [](Config& c) {
       token_choice(c);
       c.model.kappa.capacity_train = 1;
     },
     kPools},
    {"kappa_aurora",
     [](Config& c) {
       token_choice(c);
       c.optim.matrix = MatrixOptimizer::kAurora;
       c.optim.matrix_lr = 0.02;
       c.optim.clip = 0;
     },
     {{2, 2, 4}, {3, 3, 8}, {4, 2, 2, kAuto, 1}, {2, 1, 4, kAuto, 1}}},
    {"moep", expert_choice, kPools},
    {"moep_threshold",
     [](Config& c) {
       expert_choice(c);
       c.model.moep.select = Selection::kThreshold;
     },
     {{2, 2, 4}, {4, 2, 2}}},
    {"moep_token_choice",
     [](Config& c) {
       expert_choice(c);
       c.model.moep.select = Selection::kTokenChoice;
     },
     {{2, 2, 4}, {4, 4, 2}}},
};

class Layouts : public testing::TestWithParam<Family> {
 protected:
  [[nodiscard]] Config config(const Layout& layout, int64_t steps) const {
    Config c = folder_.config(join(layout.ranks, "-", layout.model, "-", layout.zero, "-",
                                   static_cast<int>(layout.streams)),
                              steps);
    c.train.batch_tokens = c.model.context * kSequences;
    c.train.precision = Precision::kFp64;
    c.train.micro_batch = layout.micro_batch;
    c.parallel.model.value = layout.model;
    c.parallel.stream_layout = layout.streams;
    c.parallel.zero = layout.zero;
    GetParam().set(c);
    fill_derived(c);
    return c;
  }

  const test::TrainingFolder folder_{true};
};

TEST_P(Layouts, EqualOneRank) {
  constexpr int64_t kSteps = 12;
  const test::Training alone = test::run_training(config({1, 1, 8}, kSteps));
  const std::vector<double> expected = alone.losses();
  ASSERT_EQ(expected.size(), static_cast<size_t>(kSteps));
  for (const Layout& layout : GetParam().layouts) {
    SCOPED_TRACE(join(layout.ranks, " ranks, model ", layout.model, ", layout ",
                      static_cast<int>(layout.streams), ", zero ", layout.zero));
    const test::Training run = test::run_training(config(layout, kSteps), {.ranks = layout.ranks});
    const std::vector<double> losses = run.losses();
    ASSERT_EQ(losses.size(), expected.size());
    for (size_t i = 0; i < losses.size(); ++i) {
      EXPECT_NEAR(losses[i], expected[i], test::kLayoutsF64.relative * expected[i]) << "step " << i;
    }
    ASSERT_EQ(run.evals.size(), alone.evals.size());
    for (size_t i = 0; i < run.evals.size(); ++i) {
      // Where experts choose without dropout, luck does decide.
      const test::Tolerance near = run.evals[i].looks_ahead ? test::kLayouts : test::kLayoutsF64;
      EXPECT_NEAR(run.evals[i].loss, alone.evals[i].loss, near.relative * alone.evals[i].loss);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Layouts, testing::ValuesIn(kFamilies),
                         [](const auto& f) { return std::string(f.param.name); });

}  // namespace
}  // namespace anabranch
