// Runs that stop and go on: resumption, requests to stop, the two trigger files.
#include <algorithm>
#include <chrono>
#include <thread>

#include <gtest/gtest.h>

#include "runtime/trainer.h"
#include "tests/data/folder.h"
#include "tests/runtime/training.h"
#include "tests/support/checkpoints.h"
#include "tests/support/tolerance.h"

namespace anabranch {
namespace {

using test::checkpoint_state;
using test::expect_error;
using test::run_training;
using test::saved_steps;
using test::Training;
using test::TrainingFolder;
using test::TrainingOptions;

// Raises `kind` on one rank alone once it has done `step`; the others hear of it with the next.
TrainingOptions stop_after(int64_t step, int ranks, int on_rank,
                           StopKind kind = StopKind::kRequeue) {
  TrainingOptions options;
  options.ranks = ranks;
  options.after_step = [=](int rank, int64_t at, StopRequest& stop) {
    if (rank == on_rank && at == step) stop.raise(kind);
  };
  return options;
}

void append(std::vector<double>& all, const std::vector<double>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

// Twelve sequences a step and about 90 samples: epoch 2 begins near step 8, epoch 3 near 16.
TEST(TrainerResume, ThreeStopsAreAsNone) {
  const TrainingFolder folder;
  constexpr int64_t kSteps = 24;
  for (const int ranks : {1, 3, 4}) {
    const auto named = [&](const std::string& name) {
      Config config = folder.config(join(name, ranks), kSteps);
      config.model.gpt2.dropout = 0.1;
      config.train.outlier_sigma = 3;  // its history is state too
      config.train.outlier_window = 8;
      config.data.document_mask = ranks == 3;
      return config;
    };
    const Config whole = named("whole"), parts = named("parts");
    const Training once = run_training(whole, {.ranks = ranks});

    std::vector<double> losses;
    for (const int64_t stop : {int64_t{3}, int64_t{10}, int64_t{22}}) {
      const Training part = run_training(parts, stop_after(stop, ranks, ranks - 1));
      EXPECT_EQ(part.codes, std::vector<int>(static_cast<size_t>(ranks), 75));
      EXPECT_EQ(saved_steps(parts.run.dir).front(), stop + 1);
      append(losses, part.losses());
    }
    const Training last = run_training(parts, {.ranks = ranks, .resume = Resume::kMust});
    append(losses, last.losses());
    ASSERT_FALSE(last.events.empty());
    EXPECT_NE(last.events[0].find("resume: resumed at step 23"), std::string::npos);
    EXPECT_EQ(losses, once.losses());
    EXPECT_EQ(checkpoint_state(parts.run.dir, kSteps), checkpoint_state(whole.run.dir, kSteps));
    EXPECT_GT(once.steps[0].back().step * 12, 2 * 90);  // epochs 1 to 3
  }
}

TEST(TrainerResume, AFinishedRunHasNothingToDo) {
  const TrainingFolder folder;
  const Config config = folder.config("run", 4);
  run_training(config, {.ranks = 2});
  const auto state = checkpoint_state(config.run.dir, 4);
  const Training again = run_training(config, {.ranks = 2});
  EXPECT_EQ(again.codes, (std::vector<int>{0, 0}));
  EXPECT_TRUE(again.steps[0].empty());
  EXPECT_TRUE(again.saves.empty());
  EXPECT_EQ(checkpoint_state(config.run.dir, 4), state);
}

TEST(TrainerResume, GoesOnWithOtherRanks) {
  const TrainingFolder folder;
  const Config whole = folder.config("whole", 20), parts = folder.config("parts", 20);
  const std::vector<double> once = run_training(whole).losses();
  std::vector<double> losses = run_training(parts, stop_after(5, 3, 0)).losses();
  append(losses, run_training(parts, stop_after(12, 2, 1)).losses());
  append(losses, run_training(parts, {.ranks = 4}).losses());
  ASSERT_EQ(losses.size(), once.size());
  for (size_t i = 0; i < once.size(); ++i) {
    EXPECT_NEAR(losses[i], once[i], test::kLayouts.relative * once[i]) << "step " << i + 1;
  }
}

// A run of the program from before there was a key: what it had no word for is the default.
TEST(TrainerResume, TellsOfChangedKeysAlone) {
  const TrainingFolder folder;
  Config config = folder.config("run", 3);
  run_training(config);
  const std::filesystem::path file = folder / "run/checkpoints/step-00000003/manifest.json";
  Manifest manifest = Manifest::parse(test::slurp(file), "manifest");
  std::string& saved = manifest.facts["config"] = dump_config(config);
  const std::string line = "  document_mask: false\n";
  ASSERT_NE(saved.find(line), std::string::npos);
  saved.erase(saved.find(line), line.size());
  test::spill(file, manifest.json());
  config.optim.clip = 2;
  const Training again = run_training(config);
  ASSERT_EQ(again.events.size(), 3U);  // the others: where it resumed, and that all steps are done
  EXPECT_EQ(again.events[0], "resume: configuration changed: optim.clip: 1 -> 2");
}

TEST(TrainerResume, MustAndNeverAreKept) {
  const TrainingFolder folder;
  const Config config = folder.config("run", 3);
  for (const int ranks : {1, 2}) {
    expect_error(Fault::kUsage, {config.run.dir, "holds no checkpoint", "--resume auto"},
                 [&] { run_training(config, {.ranks = ranks, .resume = Resume::kMust}); });
  }
  run_training(config, {.resume = Resume::kNever});
  for (const int ranks : {1, 2}) {
    expect_error(Fault::kUsage, {"already holds checkpoints", "step 3"},
                 [&] { run_training(config, {.ranks = ranks, .resume = Resume::kNever}); });
  }
}

TEST(TrainerResume, RefusesAnotherModelAndOtherData) {
  const TrainingFolder folder;
  Config config = folder.config("run", 3);
  run_training(config, {.ranks = 2});
  Config wider = config;
  wider.model.width = 32;
  wider.model.ffn_width = 0;
  fill_derived(wider);
  expect_error(Fault::kConfig, {"the checkpoint's", "float32"},
               [&] { run_training(wider, {.ranks = 2}); });
  Config other = config;
  other.data.seed = 9;
  expect_error(Fault::kData, {"checkpoint of step 3", "other data", "run.dir"},
               [&] { run_training(other, {.ranks = 2}); });
  EXPECT_EQ(saved_steps(config.run.dir), (std::vector<int64_t>{3}));
}

TEST(TrainerResume, StepsBackFromADamagedCheckpoint) {
  const TrainingFolder folder;
  Config config = folder.config("run", 8), whole = folder.config("whole", 8);
  config.checkpoint.every_steps = 2;
  run_training(whole, {.ranks = 2});
  run_training(config, stop_after(5, 2, 1));
  ASSERT_EQ(saved_steps(config.run.dir), (std::vector<int64_t>{6, 4, 2}));
  const std::string newest = config.run.dir + "/checkpoints/step-00000006/";
  std::string bytes = test::slurp(newest + "rank-0001.h5");
  bytes[bytes.size() - 5] = static_cast<char>(bytes[bytes.size() - 5] ^ 16);
  test::spill(newest + "rank-0001.h5", bytes);

  const Training run = run_training(config, {.ranks = 2});
  ASSERT_EQ(run.events.size(), 2U);
  EXPECT_NE(run.events[0].find("step-00000006 is passed over"), std::string::npos);
  EXPECT_NE(run.events[0].find("rank-0001.h5"), std::string::npos) << run.events[0];
  EXPECT_NE(run.events[1].find("resumed at step 4"), std::string::npos);
  EXPECT_EQ(checkpoint_state(config.run.dir, 8), checkpoint_state(whole.run.dir, 8));
}

TEST(TrainerStop, OneRankStopsAllAtOneStepWithOneSave) {
  const TrainingFolder folder;
  for (const int ranks : {1, 2, 4}) {
    for (const auto& [kind, code] :
         {std::pair{StopKind::kRequeue, 75}, {StopKind::kInterrupt, 130}}) {
      const Config config = folder.config(join("run", ranks, "-", code), 30);
      const Training run = run_training(config, stop_after(7, ranks, ranks - 1, kind));
      EXPECT_EQ(run.codes, std::vector<int>(static_cast<size_t>(ranks), code));
      for (const auto& reports : run.steps) EXPECT_EQ(reports.back().step, 8);
      EXPECT_EQ(saved_steps(config.run.dir), (std::vector<int64_t>{8}));
      ASSERT_EQ(run.saves.size(), 1U);
      EXPECT_TRUE(run.saves[0].ok);
      EXPECT_FALSE(checkpoint_state(config.run.dir, 8).empty());
    }
  }
}

TEST(TrainerStop, TheStrongestWishWins) {
  const TrainingFolder folder;
  const Config config = folder.config("run", 30);
  TrainingOptions options;
  options.ranks = 3;
  options.after_step = [](int rank, int64_t step, StopRequest& stop) {
    constexpr StopKind kWishes[] = {StopKind::kSave, StopKind::kInterrupt, StopKind::kRequeue};
    if (step == 4) stop.raise(kWishes[rank]);
  };
  EXPECT_EQ(run_training(config, options).codes, std::vector<int>(3, 130));
}

TEST(TrainerStop, OnTheVeryLastStepTheRunIsSaved) {
  const TrainingFolder folder;
  const Config config = folder.config("run", 5);
  EXPECT_EQ(run_training(config, stop_after(4, 2, 1)).codes, std::vector<int>(2, 75));
  EXPECT_EQ(saved_steps(config.run.dir), (std::vector<int64_t>{5}));
  const Training rest = run_training(config, {.ranks = 2});
  EXPECT_EQ(rest.codes, std::vector<int>(2, 0));
  EXPECT_TRUE(rest.steps[0].empty());
  EXPECT_EQ(rest.evals.size(), 1U);
}

TEST(TrainerStop, FilesAskForASaveAndForTheEnd) {
  const TrainingFolder folder;
  Config config = folder.config("run", 30);
  config.checkpoint.async = false;
  TrainingOptions options;
  options.ranks = 2;
  options.after_step = [&](int rank, int64_t step, StopRequest&) {
    if (rank != 0) return;
    if (step == 3) test::spill(config.run.dir + "/save", "");
    if (step == 8) test::spill(config.run.dir + "/stop", "");
    // Rank 0 looks four times a second.
    if (step == 3 || step == 8) std::this_thread::sleep_for(std::chrono::milliseconds(300));
  };
  const Training run = run_training(config, options);
  EXPECT_EQ(run.codes, std::vector<int>(2, 130));
  EXPECT_EQ(saved_steps(config.run.dir), (std::vector<int64_t>{9, 4}));
  for (const char* name : {"/save", "/stop"}) {
    EXPECT_FALSE(std::filesystem::exists(config.run.dir + name));
  }
}

}  // namespace
}  // namespace anabranch
