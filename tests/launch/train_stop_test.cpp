// Signals, trigger files, hung ranks, two jobs on one run directory, and resumption after each.
#include <algorithm>
#include <cmath>
#include <csignal>

#include <gmock/gmock.h>

#include "core/base/error.h"
#include "tests/data/folder.h"
#include "tests/launch/train_job.h"
#include "tests/support/checkpoints.h"
#include "tests/support/tolerance.h"

namespace anabranch {
namespace {

using testing::HasSubstr;
using testing::Not;

class TrainStop : public TrainJobs {
 protected:
  // After a stop on request: one step for all ranks, one save, and nothing lost.
  void expect_good_stop(const std::string& run, int ranks) {
    const int64_t step = stopped_at(run, 0);
    EXPECT_GE(step, 3);
    for (int rank = 1; rank < ranks; ++rank) EXPECT_EQ(stopped_at(run, rank), step);
    EXPECT_EQ(test::saved_steps(path(run)), (std::vector<int64_t>{step}));

    const std::string steps = join("--set=train.steps=", step + 2);
    EXPECT_EQ(train_to_end(run, ranks, {kLevel, steps, "--resume=must"}).exit_code, 0);
    EXPECT_EQ(train_to_end(run + "-whole", ranks, {kLevel, steps}).exit_code, 0);
    EXPECT_EQ(test::checkpoint_state(path(run), step + 2),
              test::checkpoint_state(path(run + "-whole"), step + 2));
    const std::vector<double> parts = losses(run), whole = losses(run + "-whole");
    EXPECT_EQ(parts, whole);
  }
};

TEST_F(TrainStop, SignalsToOneRankStopAll) {
  for (const auto& [signal, rank, code] : {std::tuple{SIGTERM, 1, 75}, {SIGINT, 0, 130}}) {
    const std::string run = join("signal-", signal);
    const auto job = train(run, 2, {kEndless, kLevel});
    ASSERT_TRUE(has_come_to(run, 3)) << job->output();
    kill(job->rank(rank), signal);
    EXPECT_EQ(finish(*job).exit_code, code) << job->output();
    expect_good_stop(run, 2);
  }
}

TEST_F(TrainStop, Usr1ToMpirunAsksForARequeue) {
  const auto job = train("run", 2, {kEndless, kLevel});
  ASSERT_TRUE(has_come_to("run", 3)) << job->output();
  kill(job->id(), SIGUSR1);
  EXPECT_EQ(finish(*job).exit_code, 75) << job->output();
  expect_good_stop("run", 2);
}

TEST_F(TrainStop, WithoutMpirunToo) {
  const auto job = train("run", 0, {kEndless, kLevel});
  ASSERT_TRUE(has_come_to("run", 3)) << job->output();
  test::spill(path("run") / "save", "");
  ASSERT_TRUE(test::soon([&] { return !test::saved_steps(path("run")).empty(); }));
  const int64_t saved = test::saved_steps(path("run")).front();
  kill(job->id(), SIGUSR1);
  EXPECT_EQ(finish(*job).exit_code, 75) << job->output();
  EXPECT_THAT(test::saved_steps(path("run")), testing::Contains(saved));
  std::filesystem::remove_all(test::checkpoints_of(path("run")).at(saved));
  expect_good_stop("run", 0);
}

TEST_F(TrainStop, ASecondJobOnTheRunIsRefused) {
  const auto job = train("run", 2, {kEndless});
  ASSERT_TRUE(has_come_to("run", 3)) << job->output();
  for (const int ranks : {0, 2}) {
    const Ended second = train_to_end("run", ranks);
    EXPECT_EQ(second.exit_code, 74);
    EXPECT_THAT(second.output, HasSubstr(join("is held by another job (host ")));
    EXPECT_THAT(second.output, HasSubstr(join("process ", job->rank(0))));
  }
  test::spill(path("run") / "stop", "");
  EXPECT_EQ(finish(*job).exit_code, 130) << job->output();
  EXPECT_GE(stopped_at("run", 1), 3);
}

TEST_F(TrainStop, AHungRankEndsTheJob) {
  const auto job = train("run", 2, {kEndless, "--set=parallel.deadline_seconds=3"});
  ASSERT_TRUE(has_come_to("run", 3)) << job->output();
  kill(job->rank(1), SIGSTOP);
  const Ended end = finish(*job);
  EXPECT_EQ(end.exit_code, 69) << end.output;
  EXPECT_THAT(end.output, testing::ContainsRegex("all_(reduce|gather).*rank 1 on .*has not come"));
}

TEST_F(TrainStop, MpiRanksGiveTheSameLosses) {
  constexpr const char* kFifty = "--set=train.steps=50";
  std::vector<double> alone;
  for (const int ranks : {1, 2, 4}) {
    const std::string run = join("ranks-", ranks);
    for (const std::string& name : {run, run + "-again"}) {
      const Ended end = train_to_end(name, ranks, {kFifty});
      ASSERT_EQ(end.exit_code, 0) << end.output;
    }
    EXPECT_EQ(losses(run), losses(run + "-again"));
    EXPECT_EQ(test::checkpoint_state(path(run), 50),
              test::checkpoint_state(path(run + "-again"), 50));
    if (ranks == 1) alone = losses(run);
    ASSERT_EQ(std::ssize(losses(run)), 50);
    for (size_t i = 0; i < alone.size(); ++i) {
      EXPECT_NEAR(losses(run)[i], alone[i], test::kLayouts.relative * std::abs(alone[i]));
    }
  }
}

TEST_F(TrainStop, MpiRanksOfAnyLayoutGiveTheSameBits) {
  const std::vector<std::string> sets = {"--set=train.deterministic=layout", "--set=train.steps=10",
                                         "--set=train.micro_batch=1", "--set=parallel.threads=1"};
  for (const int ranks : {1, 4}) {
    const Ended end = train_to_end(join("any-", ranks), ranks, sets);
    ASSERT_EQ(end.exit_code, 0) << end.output;
  }
  EXPECT_EQ(losses("any-4"), losses("any-1"));
  EXPECT_EQ(test::checkpoint_state(path("any-4"), 10), test::checkpoint_state(path("any-1"), 10));
}

}  // namespace
}  // namespace anabranch
