// Whole runs whose experts, copies and pools lie on several ranks: losses, figures and checkpoints.

#include <gtest/gtest.h>

#include "tests/runtime/training.h"
#include "tests/support/tolerance.h"

namespace anabranch {
namespace {

struct RunCase {
  const char* name;
  ModelType type;
  Selection select;
  int ranks;
  int64_t model, micro_batch, pool_sequences;
};

class ExpertRuns : public testing::TestWithParam<RunCase> {};

Config config_of(const test::TrainingFolder& folder, const std::string& name, const RunCase& run) {
  Config config = folder.config(name, 8);
  config.model.type = run.type;
  config.model.cmollm.mode = StreamMode::kPipeline;
  config.model.cmollm.streams = 3;
  config.model.cmollm.span = 1;
  config.model.parascale = {4, 3, 0.01};
  config.model.kappa.experts = 5;
  config.model.kappa.moe_first = 1;
  config.model.kappa.pool_sequences = run.pool_sequences;
  config.model.moep.windows = {6, 4, 3, 2};
  config.model.moep.expert_width = 12;
  config.model.moep.expert_heads = 2;
  config.model.moep.select = run.select;
  config.model.moep.pool_sequences = run.pool_sequences;
  config.optim.eps = 1e-4;
  config.train.precision = Precision::kFp64;
  config.train.log_every = 1;
  return config;
}

TEST_P(ExpertRuns, AreThoseOfOneRank) {
  const RunCase& run = GetParam();
  const test::TrainingFolder folder;
  Config one = config_of(folder, "one", run), many = config_of(folder, "many", run);
  one.train.micro_batch = run.pool_sequences;
  many.train.micro_batch = run.micro_batch;
  many.parallel.model.value = run.model;
  const test::Training want = test::run_training(one);
  const test::Training got = test::run_training(many, {.ranks = run.ranks});
  ASSERT_EQ(got.losses().size(), want.losses().size());
  for (size_t i = 0; i < want.losses().size(); ++i) {
    EXPECT_NEAR(got.losses()[i], want.losses()[i], 1e-9 * want.losses()[i]) << "step " << i;
  }
  const auto &readings = got.steps[0].back().readings, &of_one = want.steps[0].back().readings;
  ASSERT_EQ(readings.size(), of_one.size());
  for (size_t i = 0; i < readings.size(); ++i) {
    EXPECT_EQ(readings[i].metric, of_one[i].metric);
    EXPECT_NEAR(readings[i].value, of_one[i].value, 1e-3 * (1 + std::abs(of_one[i].value)))
        << static_cast<int>(readings[i].metric);
  }
  ASSERT_EQ(got.evals.size(), want.evals.size());
  for (size_t i = 0; i < want.evals.size(); ++i) {
    EXPECT_NEAR(got.evals[i].loss, want.evals[i].loss, 1e-9 * want.evals[i].loss)
        << (want.evals[i].looks_ahead ? "as trained" : "causal");
  }
}

// What many ranks wrote, one goes on from, and the other way round.
TEST_P(ExpertRuns, GoOnOnOtherRanks) {
  const RunCase& run = GetParam();
  const test::TrainingFolder folder;
  std::vector<double> want;
  for (const bool first_alone : {true, false}) {
    Config config = config_of(folder, first_alone ? "a" : "b", run);
    std::vector<double> losses;
    for (const bool alone : {first_alone, !first_alone}) {
      config.train.steps += losses.empty() ? 0 : 4;
      config.train.micro_batch = alone ? run.pool_sequences : run.micro_batch;
      config.parallel.model.value = alone ? 1 : run.model;
      const auto part = test::run_training(config, {.ranks = alone ? 1 : run.ranks}).losses();
      losses.insert(losses.end(), part.begin(), part.end());
    }
    ASSERT_EQ(losses.size(), 12U);
    if (want.empty()) want = losses;
    for (size_t i = 0; i < losses.size(); ++i) {
      EXPECT_NEAR(losses[i], want[i], 1e-9 * want[i]) << "step " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Cases, ExpertRuns,
    testing::Values(RunCase{"kappa", ModelType::kKappaMoe, Selection::kEcBatch, 2, 2, 1, 1},
                    RunCase{"kappa_pool", ModelType::kKappaMoe, Selection::kEcBatch, 4, 2, 1, 4},
                    RunCase{"moep_uneven", ModelType::kMoepMsit, Selection::kEcBatch, 3, 3, 1, 3},
                    RunCase{"moep_token_choice", ModelType::kMoepMsit, Selection::kTokenChoice, 4,
                            2, 1, 2},
                    RunCase{"pipeline_uneven", ModelType::kCmollm, Selection::kEcBatch, 2, 2, 1, 1},
                    RunCase{"pipeline", ModelType::kCmollm, Selection::kEcBatch, 6, 3, 1, 1},
                    RunCase{"parascale", ModelType::kParascale, Selection::kEcBatch, 3, 3, 1, 1}),
    [](const auto& of) { return std::string(of.param.name); });

}  // namespace
}  // namespace anabranch
