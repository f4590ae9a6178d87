// Runs in which something goes wrong: numbers, the disk, a rank.
#include <algorithm>
#include <csignal>
#include <sys/resource.h>

#include <gtest/gtest.h>

#include "runtime/trainer.h"
#include "tests/data/folder.h"
#include "tests/runtime/training.h"
#include "tests/support/checkpoints.h"

namespace anabranch {
namespace {

using test::checkpoint_state;
using test::expect_error;
using test::run_training;
using test::saved_steps;
using test::Training;
using test::TrainingFolder;
using test::TrainingOptions;

// A disk on which no file of this process may grow beyond some bytes, while set.
class FullDisk {
 public:
  FullDisk() : handler_(std::signal(SIGXFSZ, SIG_IGN)) { getrlimit(RLIMIT_FSIZE, &before_); }

  ~FullDisk() {
    set(false);
    std::signal(SIGXFSZ, handler_);
  }

  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;

  void set(bool full) const {
    rlimit limit = before_;
    if (full) limit.rlim_cur = 2048;
    setrlimit(RLIMIT_FSIZE, &limit);
  }

 private:
  void (*handler_)(int);
  rlimit before_{};
};

// A run of 6 good steps with its checkpoint.
Config begun(const TrainingFolder& folder, const std::string& name, int ranks) {
  Config config = folder.config(name, 6);
  run_training(config, {.ranks = ranks});
  config.train.steps = 40;
  config.train.nonfinite_limit = 4;
  return config;
}

// An update so large that the next loss is not finite.
TEST(TrainerFailure, NonFiniteStepsAreSkippedAndThenEndTheRun) {
  const TrainingFolder folder;
  for (const int ranks : {1, 3, 4}) {
    Config config = begun(folder, join("run", ranks), ranks);
    const auto before = checkpoint_state(config.run.dir, 6);
    config.optim.lr = 1e30;
    Training run;
    TrainingOptions options;
    options.ranks = ranks;
    options.record = &run;
    expect_error(Fault::kInternal, {"not finite for 4 steps in a row", "optim.lr"},
                 [&] { run_training(config, options); });
    for (const auto& reports : run.steps) {
      ASSERT_GE(reports.size(), 5U);
      const auto skipped = std::ranges::count(reports, "nonfinite", &StepReport::skipped);
      EXPECT_EQ(skipped, reports.back().skipped_steps);
      for (size_t i = reports.size() - 4; i < reports.size(); ++i) {
        EXPECT_EQ(reports[i].skipped, "nonfinite");
      }
      EXPECT_EQ(reports.front().skipped, "");
    }
    EXPECT_EQ(saved_steps(config.run.dir), (std::vector<int64_t>{6}));
    EXPECT_EQ(checkpoint_state(config.run.dir, 6), before);
  }
}

// Weights that are not finite must never replace a good checkpoint.
TEST(TrainerFailure, APoisonedModelIsNotSaved) {
  const TrainingFolder folder;
  for (const bool async : {false, true}) {
    Config config = begun(folder, join("run", async), 4);
    const auto before = checkpoint_state(config.run.dir, 6);
    config.optim.lr = 1e300;
    config.checkpoint.every_steps = 1;
    config.checkpoint.async = async;
    Training run;
    TrainingOptions options;
    options.ranks = 4;
    options.record = &run;
    expect_error(Fault::kInternal, {"not finite"}, [&] { run_training(config, options); });
    ASSERT_GE(run.saves.size(), 2U);
    for (const SaveReport& save : run.saves) EXPECT_FALSE(save.ok) << save.step;
    EXPECT_EQ(saved_steps(config.run.dir), (std::vector<int64_t>{6}));
    EXPECT_EQ(checkpoint_state(config.run.dir, 6), before);
  }
}

TEST(TrainerFailure, OutliersAreSkippedAndRemembered) {
  const TrainingFolder folder;
  const auto named = [&](const std::string& name) {
    Config config = folder.config(name, 40);
    config.optim.lr = 1e-5;  // the loss only wavers
    config.train.outlier_window = 8;
    config.train.outlier_sigma = 0.5;
    return config;
  };
  const Config whole = named("whole"), parts = named("parts");
  const Training once = run_training(whole, {.ranks = 2});
  const auto skipped = std::ranges::count(once.steps[0], "outlier", &StepReport::skipped);
  EXPECT_GT(skipped, 3);
  EXPECT_LT(skipped, 36);
  EXPECT_EQ(skipped, once.steps[0].back().skipped_steps);
  EXPECT_EQ(once.codes, std::vector<int>(2, 0));

  TrainingOptions stop;
  stop.ranks = 2;
  stop.after_step = [](int, int64_t step, StopRequest& request) {
    if (step == 20) request.raise(StopKind::kRequeue);
  };
  run_training(parts, stop);
  const Training rest = run_training(parts, {.ranks = 2});
  EXPECT_EQ(rest.steps[0].back().skipped_steps, skipped);
  EXPECT_EQ(checkpoint_state(parts.run.dir, 40), checkpoint_state(whole.run.dir, 40));
}

TEST(TrainerFailure, AFullDiskDoesNotStopTraining) {
  const TrainingFolder folder;
  const FullDisk disk;
  for (const int ranks : {1, 4}) {
    Config config = folder.config(join("run", ranks), 10), plain = folder.config("plain", 10);
    config.checkpoint.every_steps = 2;
    config.checkpoint.async = false;
    plain.run.dir += std::to_string(ranks);
    std::map<std::string, std::string> older;
    TrainingOptions options;
    options.ranks = ranks;
    options.after_step = [&](int rank, int64_t step, StopRequest&) {
      if (rank != 0) return;
      if (step == 3) {
        older = checkpoint_state(config.run.dir, 2);
        disk.set(true);
      } else if (step == 7) {
        EXPECT_EQ(saved_steps(config.run.dir), (std::vector<int64_t>{2}));
        EXPECT_EQ(checkpoint_state(config.run.dir, 2), older);
        disk.set(false);
      }
    };
    const Training run = run_training(config, options);
    std::vector<std::pair<int64_t, bool>> saves;
    for (const SaveReport& save : run.saves) saves.emplace_back(save.step, save.ok);
    EXPECT_EQ(saves, (std::vector<std::pair<int64_t, bool>>{
                         {2, true}, {4, false}, {6, false}, {8, true}, {10, true}}));
    for (const SaveReport& save : run.saves) EXPECT_EQ(save.error.empty(), save.ok);
    EXPECT_EQ(saved_steps(config.run.dir), (std::vector<int64_t>{10, 8, 2}));
    run_training(plain, {.ranks = ranks});
    EXPECT_EQ(checkpoint_state(config.run.dir, 10), checkpoint_state(plain.run.dir, 10));
  }
}

TEST(TrainerFailure, ALastSaveThatFailsEndsTheRunWith74) {
  const TrainingFolder folder;
  const FullDisk disk;
  for (const int ranks : {1, 4}) {
    for (const bool stopped : {false, true}) {
      Config config = begun(folder, join("run", ranks, "-", stopped), ranks);
      const auto before = checkpoint_state(config.run.dir, 6);
      config.train.steps = 10;
      TrainingOptions options;
      options.ranks = ranks;
      options.after_step = [&](int rank, int64_t step, StopRequest& stop) {
        if (rank == 0 && step == 8) disk.set(true);
        if (stopped && step == 8) stop.raise(StopKind::kRequeue);
      };
      expect_error(Fault::kIo, {"could not be written", "newest good one is of step 6"},
                   [&] { run_training(config, options); });
      disk.set(false);
      EXPECT_EQ(saved_steps(config.run.dir), (std::vector<int64_t>{6}));
      EXPECT_EQ(checkpoint_state(config.run.dir, 6), before);
      EXPECT_EQ(run_training(config, {.ranks = ranks}).codes[0], 0);
    }
  }
}

// The folder is replaced by a file while a run goes on.
TEST(TrainerFailure, AFolderThatGoesAwayIsASaveThatFails) {
  const TrainingFolder folder;
  Config config = begun(folder, "run", 2);
  config.train.steps = 12;
  config.checkpoint.every_steps = 1;
  const std::string checkpoints = config.run.dir + "/checkpoints", away = config.run.dir + "/away";
  Training run;
  TrainingOptions options;
  options.ranks = 2;
  options.record = &run;
  options.after_step = [&](int rank, int64_t step, StopRequest&) {
    if (rank != 0 || step != 8) return;
    std::filesystem::rename(checkpoints, away);
    test::spill(checkpoints, "in the way");
  };
  expect_error(Fault::kIo, {"step 12 could not be written"},
               [&] { run_training(config, options); });
  EXPECT_EQ(run.steps[0].back().step, 12);
  EXPECT_FALSE(run.saves.back().ok);
  std::filesystem::remove(checkpoints);
  std::filesystem::rename(away, checkpoints);
  EXPECT_FALSE(checkpoint_state(config.run.dir, 6).empty());
  EXPECT_EQ(run_training(config, {.ranks = 2}).codes[0], 0);
}

TEST(TrainerFailure, ARankThatThrowsEndsAllWithItsMessage) {
  const TrainingFolder folder;
  for (const int ranks : {2, 4}) {
    for (const int64_t at : {1, 5}) {
      Config config = folder.config(join("run", ranks, "-", at), 7);
      config.checkpoint.every_steps = 2;
      TrainingOptions options;
      options.ranks = ranks;
      options.after_step = [&](int rank, int64_t step, StopRequest&) {
        if (rank == ranks - 1 && step == at) throw data_error("planted in rank ", rank);
      };
      expect_error(Fault::kData, {join("planted in rank ", ranks - 1)},
                   [&] { run_training(config, options); });
      // What was saved until then can be gone on from.
      EXPECT_EQ(run_training(config, {.ranks = ranks}).codes[0], 0);
    }
  }
}

}  // namespace
}  // namespace anabranch
