// Signals, disks and clocks that go wrong at chosen moments of a job of four ranks: see
// tests/support/faults.c. AB_ROUNDS=2 takes every moment with either signal.
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <set>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/host_name.h"
#include "tests/data/folder.h"
#include "tests/launch/train_job.h"
#include "tests/support/checkpoints.h"

namespace anabranch {
namespace {
namespace fs = std::filesystem;

using testing::HasSubstr;
using testing::Not;

constexpr int kRanks = 4;

class TrainFaults : public TrainJobs {
 protected:
  void SetUp() override {
    if (std::string(AB_FAULTS).empty()) {
      GTEST_SKIP() << "a sanitizer's runtime must be loaded first, so nothing can be preloaded";
    }
    TrainJobs::SetUp();
  }

  // What the jobs from here on meet; numbered calls count from arm() on.
  void meet(const std::string& rules) {
    fs::remove(path("armed"));
    set_environment({{"LD_PRELOAD", AB_FAULTS},
                     {"AB_FAULTS", rules},
                     {"AB_FAULTS_ARM", path("armed").string()},
                     {"AB_FAULTS_CLOCK", path("clock").string()}});
  }

  void arm() const { test::spill(path("armed"), ""); }

  // The saves that a run tells of.
  struct Saves {
    std::vector<int64_t> good, failed;
  };

  [[nodiscard]] Saves saves(const std::string& run) const {
    Saves all;
    for_each_line(run, [&](const nlohmann::json& report) {
      if (report.at("type") != "save") return;
      (report.contains("error") ? all.failed : all.good)
          .push_back(report.at("step").get<int64_t>());
    });
    return all;
  }

  // Unpublished checkpoints: of a save under way.
  [[nodiscard]] std::set<std::string> half_saves(const std::string& run) const {
    std::set<std::string> names;
    std::error_code gone;
    for (const auto& item : fs::directory_iterator(path(run) / "checkpoints", gone)) {
      const std::string name = item.path().filename();
      if (name.starts_with(".saving-step-") && !name.ends_with(".old")) names.insert(name);
    }
    return names;
  }

  static std::string set(const std::string& text) { return "--set=" + text; }
};

// A moment at which a signal comes to one rank of a job.
struct Moment {
  const char* name;
  const char* rules;  // SIG stands for the signal
  std::vector<std::string> arguments = {};
  bool from_start = false;  // else once the job trains
};

const std::vector<Moment> kMoments = {
    {"the configuration is read", "3@open:run.yaml:1:signal=SIG", {}, true},
    {"the data set is opened", "2@open:train-00000.h5:1:signal=SIG", {}, true},
    {"the first batch is read", "1@read:train-00000.h5:30:signal=SIG", {}, true},
    {"it waits for data",
     "*@read:train-:*:sleep=20;3@read:train-:5:signal=SIG",
     {"data.verify=false"}},
    {"it computes", "", {}},
    {"it evaluates",
     "*@read:val-:*:sleep=20;0@read:val-:2:signal=SIG",
     {"data.verify=false", "eval.every_steps=2"}},
    {"it saves",
     "*@sync:.saving-:*:sleep=60;2@sync:.saving-:1:signal=SIG",
     {"checkpoint.every_steps=3"}},
    {"it saves, and again and again until it ends",
     "*@sync:.saving-:*:sleep=60;1@sync:.saving-:1:signal=SIG;1@sync:.saving-:2:signal=SIG;"
     "1@sync:.saving-:3:signal=SIG;1@sync:.saving-:5:signal=SIG;1@sync:.saving-:6:signal=SIG",
     {"checkpoint.every_steps=3"}},
};

std::string with_signal(std::string rules, int signal) {
  for (size_t at = 0; (at = rules.find("SIG", at)) != std::string::npos;) {
    rules.replace(at, 3, std::to_string(signal));
  }
  return rules;
}

// All ranks stop at one step, which is saved whole and once.
TEST_F(TrainFaults, ASignalAtAnyMomentLeavesOneGoodSave) {
  const char* rounds = std::getenv("AB_ROUNDS");
  const int both = rounds != nullptr && std::atoi(rounds) > 1 ? 1 : 0;
  int sent = 0;
  for (size_t i = 0; i < kMoments.size(); ++i) {
    const Moment& moment = kMoments[i];
    for (int round = 0; round <= both; ++round) {
      const int signal = (i + static_cast<size_t>(round)) % 2 == 0 ? SIGUSR1 : SIGTERM;
      SCOPED_TRACE(join("signal ", signal, " while ", moment.name));
      const std::string run = join("run-", i, "-", round);
      meet(with_signal(moment.rules, signal));
      if (moment.from_start) arm();
      std::vector<std::string> arguments{kEndless};
      for (const std::string& text : moment.arguments) arguments.push_back(set(text));
      const auto job = train(run, kRanks, arguments);
      if (!moment.from_start) {
        ASSERT_TRUE(has_come_to(run, 3)) << job->output();
        arm();
        if (*moment.rules == 0) kill(job->rank(3), signal);
      }
      const Ended end = finish(*job);
      ASSERT_EQ(end.exit_code, 75) << end.output;
      const int64_t step = stopped_at(run, 0);
      for (int rank = 1; rank < kRanks; ++rank) EXPECT_EQ(stopped_at(run, rank), step);
      EXPECT_EQ(test::saved_steps(path(run)).front(), step);
      EXPECT_FALSE(test::checkpoint_state(path(run), step).empty());
      EXPECT_EQ(half_saves(run), std::set<std::string>{});
      EXPECT_EQ(std::ranges::count(saves(run).good, step), 1);
      EXPECT_TRUE(saves(run).failed.empty());
      ++sent;
    }
  }
  RecordProperty("signals", std::to_string(sent));
}

// Whatever refuses, on whatever rank: training goes on, and the next save is good.
TEST_F(TrainFaults, ADiskThatRefusesOnOneRankCostsOneSave) {
  const std::vector<std::string> saving = {set("checkpoint.every_steps=10")};
  ASSERT_EQ(train_to_end("whole", kRanks, saving).exit_code, 0);
  const auto want = test::checkpoint_state(path("whole"), kSteps);
  const std::vector<std::pair<std::string, int>> refusals = {{"0@open:manifest.json.tmp:1", EROFS},
                                                             {"1@write:.saving-:1", ENOSPC},
                                                             {"2@sync:.saving-:1", EIO},
                                                             {"3@open:rank-0003.h5.tmp:1", EDQUOT}};
  for (const auto& [where, code] : refusals) {
    SCOPED_TRACE(where);
    const std::string run = join("run-", code);
    meet(join(where, ":error=", code));
    arm();
    const Ended end = train_to_end(run, kRanks, saving);
    ASSERT_EQ(end.exit_code, 0) << end.output;
    EXPECT_EQ(saves(run).failed, std::vector<int64_t>{10});
    EXPECT_EQ(test::saved_steps(path(run)), (std::vector<int64_t>{kSteps, 20}));
    EXPECT_EQ(half_saves(run), std::set<std::string>{});
    EXPECT_EQ(test::checkpoint_state(path(run), kSteps), want);
    EXPECT_THAT(end.output, HasSubstr("saving step 10 failed: "));
  }
}

// Every rank sees what the others write some time after it is there; and after a restart the first
// host sees it at once, the others do not.
TEST_F(TrainFaults, FilesThatOtherRanksSeeLateAreWaitedFor) {
  meet("*@open:checkpoints/:*:late=200;*@stat:checkpoints/:*:late=200");
  const std::vector<std::string> saving = {kLevel, set("checkpoint.every_steps=10")};
  const Ended end = train_to_end("run", kRanks, saving);
  ASSERT_EQ(end.exit_code, 0) << end.output;
  EXPECT_EQ(saves("run").good, (std::vector<int64_t>{10, 20, 30}));
  EXPECT_TRUE(saves("run").failed.empty());

  std::string late;
  for (int rank = 1; rank < kRanks; ++rank) {
    for (const char* call : {"open", "stat"})
      late += join(rank, "@", call, ":checkpoints/:*:late=2000;");
  }
  meet(late);
  const std::vector<std::string> more = {kLevel, set("train.steps=33"), "--resume=must"};
  const Ended again = train_to_end("run", kRanks, more);
  ASSERT_EQ(again.exit_code, 0) << again.output;
  EXPECT_THAT(again.output, HasSubstr("resumed at step 30"));
  EXPECT_THAT(again.output, Not(HasSubstr("passed over")));
}

TEST_F(TrainFaults, AShardThatOneHostLacksIsNamed) {
  meet(join("2@open:val-00000.h5:*:error=", ENOENT));
  const Ended end = train_to_end("run", kRanks);
  EXPECT_EQ(end.exit_code, 65) << end.output;
  EXPECT_THAT(end.output, HasSubstr(join("rank 2 on ", host_name())));
  EXPECT_THAT(end.output, HasSubstr("val-00000.h5: no such file"));
  EXPECT_TRUE(losses("run").empty());
}

// Saves are asked for faster than the disk takes them: each waits for the one before, one folder is
// written at a time, and no copy of the state is left in memory.
TEST_F(TrainFaults, SavesSlowerThanTheirIntervalWaitForEachOther) {
  constexpr int64_t kSaves = 25;
  constexpr double kLeast = 6 << 20;  // bytes; a rank's copy of its share is 1.3 MB
  meet("*@sync:.saving-:*:sleep=15");
  const auto job =
      train("run", kRanks,
            {set(join("train.steps=", kSaves)), set("checkpoint.every_steps=1"),
             set("checkpoint.keep_last=2"), set("model.width=128"), set("model.layers=2")});
  size_t most = 0;
  const bool over = test::soon([&] {
    most = std::max(most, half_saves("run").size());
    return job->ended().has_value();
  });
  EXPECT_TRUE(over);
  const Ended end = finish(*job);
  ASSERT_EQ(end.exit_code, 0) << end.output;
  EXPECT_EQ(most, 1U);
  std::vector<int64_t> all(kSaves);
  for (int64_t i = 0; i < kSaves; ++i) all[static_cast<size_t>(i)] = i + 1;
  EXPECT_EQ(saves("run").good, all);
  EXPECT_EQ(test::saved_steps(path("run")), (std::vector<int64_t>{kSaves, kSaves - 1}));
  std::vector<double> resident;
  for_each_line("run", [&](const nlohmann::json& report) {
    if (report.at("type") == "step") resident.push_back(report.at("resident_memory_bytes_max"));
  });
  ASSERT_EQ(std::ssize(resident), kSaves);
  EXPECT_LT(resident.back() - resident[5], kLeast);
}

// Hours forth, then back: the wall clock is for people alone.
TEST_F(TrainFaults, AClockThatJumpsChangesNothing) {
  meet("");
  const auto job =
      train("run", kRanks,
            {kEndless, set("parallel.watchdog_seconds=4"), set("checkpoint.every_steps=20"),
             set("eval.every_steps=20"), set("metrics.listen=127.0.0.1:0")});
  constexpr int64_t kTenYears = int64_t{3652} * 24 * 3600;
  int64_t step = 3;
  for (const int64_t jump : {kTenYears, int64_t{-7200}, int64_t{3600}, int64_t{0}}) {
    ASSERT_TRUE(has_come_to("run", step)) << job->output();
    test::spill(path("clock"), std::to_string(jump));
    step = std::ssize(losses("run")) + 30;
  }
  ASSERT_TRUE(has_come_to("run", step)) << job->output();
  test::spill(path("run") / "stop", "");
  const Ended end = finish(*job);
  EXPECT_EQ(end.exit_code, 130) << end.output;
  EXPECT_THAT(end.output, Not(HasSubstr("no progress")));
  int64_t durations = 0;
  for_each_line("run", [&](const nlohmann::json& report) {
    for (const auto& [key, value] : report.items()) {
      if (key.find("seconds") == std::string::npos || !value.is_number()) continue;
      ++durations;
      EXPECT_GE(value.get<double>(), 0) << report.dump();
    }
  });
  EXPECT_GT(durations, 100);
  // The log did see the jump: it has lines of two years.
  const std::string log = text_of("run/log/rank-0000.log");
  std::set<std::string> years;
  for (size_t at = 0; at < log.size(); at = log.find('\n', at) + 1) years.insert(log.substr(at, 4));
  EXPECT_GE(years.size(), 2U) << log;
}

}  // namespace
}  // namespace anabranch
