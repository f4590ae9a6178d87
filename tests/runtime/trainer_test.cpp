#include "runtime/trainer.h"

#include <cmath>

#include <gtest/gtest.h>

#include "tests/runtime/training.h"
#include "tests/support/checkpoints.h"
#include "tests/support/tolerance.h"

namespace anabranch {
namespace {

using test::checkpoint_state;
using test::run_training;
using test::Training;
using test::TrainingFolder;

constexpr int64_t kSteps = 50;

// The whole course of a run and its last state, for a number of ranks.
struct Course {
  std::vector<double> losses;
  std::map<std::string, std::string> state;

  bool operator==(const Course&) const = default;
};

Course course(const Config& config, int ranks) {
  const Training run = run_training(config, {.ranks = ranks});
  for (const int code : run.codes) EXPECT_EQ(code, 0);
  return {run.losses(), checkpoint_state(config.run.dir, config.train.steps)};
}

// One order of samples, one gradient and one pattern of dropout, however a step is cut up; and the
// ranks of one run agree to the bit.
TEST(Trainer, LossesDoNotDependOnTheNumberOfRanks) {
  const TrainingFolder folder;
  for (const double dropout : {0.0, 0.2}) {
    std::vector<double> alone;
    for (const int ranks : {1, 2, 3, 4}) {
      const std::string what = join(ranks, " ranks, dropout ", dropout);
      Config config = folder.config(join("run-", ranks, "-", dropout), kSteps);
      config.model.gpt2.dropout = dropout;
      const Training run = run_training(config, {.ranks = ranks});
      ASSERT_EQ(run.losses().size(), static_cast<size_t>(kSteps));
      if (ranks == 1) alone = run.losses();
      test::expect_close(run.losses(), alone, what);
      for (const auto& reports : run.steps) {
        for (size_t i = 0; i < reports.size(); ++i) {
          EXPECT_EQ(reports[i].loss, run.steps[0][i].loss) << what;
          EXPECT_EQ(reports[i].grad_norm, run.steps[0][i].grad_norm) << what;
        }
      }
    }
    EXPECT_LT(alone.back(), alone.front() - 0.5);
  }
}

TEST(Trainer, FiguresOfGpusAreThoseOfAllRanks) {
  const TrainingFolder folder;
  const auto gpu = [](int rank) {
    GpuReading reading = unknown_gpu();
    reading[0] = 0.25 * (1 + rank);
    reading[kGpuSpreads] = 100 * rank;
    return reading;
  };
  const Training run = run_training(folder.config("gpus", 2), {.ranks = 3, .gpu = gpu});
  for (const auto& reports : run.steps) {
    ASSERT_EQ(reports.back().gpu.size(), kGpuFigures);
    EXPECT_EQ(reports.back().gpu[0].min, 0.25);
    EXPECT_EQ(reports.back().gpu[0].median, 0.5);
    EXPECT_EQ(reports.back().gpu[0].max, 0.75);
    EXPECT_EQ(reports.back().gpu[kGpuSpreads].sum, 300);
    EXPECT_TRUE(std::isnan(reports.back().gpu[1].max));
  }
  EXPECT_TRUE(run_training(folder.config("none", 2)).steps[0].back().gpu.empty());
}

TEST(Trainer, LossesDoNotDependOnMicroBatches) {
  const TrainingFolder folder;
  for (const double dropout : {0.0, 0.2}) {
    std::vector<double> one;
    for (const auto& [micro_batch, ranks] : {std::pair{1, 1}, {2, 1}, {12, 1}, {2, 3}, {6, 2}}) {
      Config config = folder.config(join("run-", dropout, "-", micro_batch, "-", ranks), kSteps);
      config.model.gpt2.dropout = dropout;
      config.train.micro_batch = micro_batch;
      const std::vector<double> losses = run_training(config, {.ranks = ranks}).losses();
      if (one.empty()) one = losses;
      test::expect_close(losses, one, join("micro-batch ", micro_batch, " on ", ranks));
    }
  }
}

TEST(Trainer, DropoutAndSeedsMatter) {
  const TrainingFolder folder;
  const Config plain = folder.config("plain", 3);
  Config dropout = folder.config("dropout", 3), seed = folder.config("seed", 3),
         order = folder.config("order", 3);
  dropout.model.gpt2.dropout = 0.2;
  seed.run.seed = 2;
  order.data.seed = 2;
  const std::vector<double> losses = run_training(plain).losses();
  for (const Config* other : {&dropout, &seed, &order}) {
    EXPECT_NE(run_training(*other).losses(), losses) << other->run.dir;
  }
}

TEST(Trainer, ComesOutTheSameTwice) {
  const TrainingFolder folder;
  for (const int ranks : {1, 2, 3, 4}) {
    for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
      const auto once = [&](const std::string& name) {
        Config config = folder.config(join(name, ranks, word_of(precision)), 15);
        config.model.gpt2.dropout = 0.1;
        config.train.precision = precision;
        return course(config, ranks);
      };
      EXPECT_EQ(once("first"), once("again")) << ranks << " ranks, " << word_of(precision);
    }
  }
}

// What only looks at a run leaves no trace in it; nor do figures of a mixture.
TEST(Trainer, WatchingARunDoesNotChangeIt) {
  const TrainingFolder folder;
  for (const auto& [type, ranks] : {std::pair{ModelType::kGpt2, 1},
                                    {ModelType::kGpt2, 4},
                                    {ModelType::kKappaMoe, 4},
                                    {ModelType::kCmollm, 4}}) {
    SCOPED_TRACE(join(word_of(type), " on ", ranks));
    const auto named = [&, type = type, ranks = ranks](const std::string& name) {
      Config config = folder.config(join(name, word_of(type), ranks), 12);
      config.model.type = type;
      config.model.gpt2.dropout = 0.1;
      config.model.kappa.experts = 4;
      config.model.kappa.moe_first = 1;
      config.model.cmollm.streams = 4;
      config.train.log_every = 1000;
      fill_derived(config);
      return config;
    };
    const Course plain = course(named("plain"), ranks);

    Config measured = named("measured");
    measured.eval.every_steps = 1;
    EXPECT_EQ(course(measured, ranks), plain);

    Config logged = named("logged");
    logged.train.log_every = 1;
    logged.parallel.check_every = 1;
    EXPECT_EQ(course(logged, ranks), plain);

    Config saved = named("saved");
    saved.checkpoint.every_steps = 1;
    EXPECT_EQ(course(saved, ranks), plain);
    saved = named("saved at once");
    saved.checkpoint.every_steps = 1;
    saved.checkpoint.async = false;
    EXPECT_EQ(course(saved, ranks), plain);

    const Config profiled = named("profiled");
    const Training run = run_training(profiled, {.ranks = ranks, .profile = {2, 4}});
    EXPECT_EQ((Course{run.losses(), checkpoint_state(profiled.run.dir, 12)}), plain);
    EXPECT_GT(run.trace_bytes, 1000U);
  }
}

TEST(Trainer, MeasuresTheWholeSplitAlikeOnAnyRanks) {
  const TrainingFolder folder;
  std::vector<EvalReport> alone;
  for (const int ranks : {1, 2, 3}) {
    Config config = folder.config(join("run-", ranks), 6);
    config.eval.every_steps = 2;
    const std::vector<EvalReport> evals = run_training(config, {.ranks = ranks}).evals;
    ASSERT_EQ(evals.size(), 3U);
    if (ranks == 1) alone = evals;
    for (size_t i = 0; i < evals.size(); ++i) {
      EXPECT_EQ(evals[i].step, static_cast<int64_t>(2 * (i + 1)));
      EXPECT_EQ(evals[i].tokens, alone[i].tokens);
      EXPECT_NEAR(evals[i].loss, alone[i].loss, test::kLayouts.relative * alone[i].loss);
      EXPECT_NEAR(std::log(evals[i].perplexity), evals[i].loss, test::kModelF64.relative);
      EXPECT_GT(evals[i].bits_per_byte, 0);
    }
    EXPECT_LT(evals.back().loss, evals.front().loss);
  }
}

TEST(Trainer, ReportsAddUp) {
  const TrainingFolder folder;
  const Config config = folder.config("run", 5);
  const Training run = run_training(config, {.ranks = 2});
  for (size_t i = 0; i < run.steps[0].size(); ++i) {
    const StepReport& report = run.steps[0][i];
    EXPECT_EQ(report.step, static_cast<int64_t>(i + 1));
    EXPECT_EQ(report.total_steps, 5);
    EXPECT_EQ(report.tokens, config.train.batch_tokens * report.step);
    EXPECT_EQ(report.skipped, "");
    EXPECT_GT(report.tokens_per_second, 0);
    EXPECT_GT(report.flops_per_second, report.tokens_per_second);
    EXPECT_LE(report.compute_seconds.min, report.compute_seconds.max);
    EXPECT_GT(report.resident_bytes.min, 1 << 20);
    EXPECT_GT(report.comm.of(CollectiveKind::kAllReduceSum).bytes, 0);
  }
  EXPECT_TRUE(run.steps[0].back().logged);
}

}  // namespace
}  // namespace anabranch
