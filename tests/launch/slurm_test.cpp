// Jobs on a small SLURM cluster (tests/support/slurm.sh), submitted as users do. AB_SLOW=1 adds
// what takes minutes: SLURM's own time limit, and its notice of dead nodes.
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <regex>
#include <unistd.h>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "tests/data/folder.h"
#include "tests/launch/slurm_job.h"
#include "tests/support/checkpoints.h"

namespace anabranch {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr int64_t kLong = 1000;  // steps that last long enough for something to happen
const std::string kLongRun = "--set=train.steps=" + std::to_string(kLong);

TEST_F(Slurm, AJobOnTwoNodesRunsToItsEndByEitherLauncher) {
  bring_up(2);
  for (const std::string launcher : {"srun", "mpirun"}) {
    const std::string job = submit_run(launcher, {"AB_LAUNCHER=" + launcher}, {"--nodes=2"});
    ASSERT_EQ(ends(job), "COMPLETED") << everything(job);
    expect_undisturbed(launcher, 2, kSteps);
    EXPECT_THAT(codes(launcher), ElementsAre(0));
    EXPECT_EQ(attempts(launcher, "begin")[0].at("hosts"), "n[1-2]");
    EXPECT_THAT(text_of(launcher + "/plan.txt"), HasSubstr("2 on 2 hosts: n1 1, n2 1"));
    const std::string output = text_of(join(launcher, "/log/job-", job, ".out"));
    EXPECT_THAT(output, HasSubstr("ok    ranks: 2 on 2 hosts: n1 1, n2 1"));
    EXPECT_THAT(output, HasSubstr("launch: done: the run is complete"));
    const std::string kept = text_of(join(launcher, "/log/job-", job, "-environment.txt"));
    EXPECT_THAT(kept, HasSubstr("SLURM_JOB_ID=" + job));
    EXPECT_THAT(kept, HasSubstr("anabranch 0."));
  }
}

// As before a time limit or a preemption: SLURM's signal to the batch script, a save, the queue
// again, and the weights of a run that nobody has disturbed.
TEST_F(Slurm, ASignalledJobSavesQueuesAgainAndEndsAsUndisturbed) {
  bring_up(2);
  const std::vector<std::string> launchers = {"srun", "mpirun"};
  std::vector<std::string> jobs;
  for (const std::string& launcher : launchers) {
    jobs.push_back(submit_run(launcher, {"AB_LAUNCHER=" + launcher}, {"--nodes=2"}, {kLongRun}));
    ASSERT_TRUE(has_come_to(launcher, 3)) << everything(jobs.back());
    on_cluster({"scancel", "--batch", "--signal=USR1", jobs.back()});
  }
  for (size_t i = 0; i < jobs.size(); ++i) {
    const std::string& run = launchers[i];
    ASSERT_EQ(ends(jobs[i]), "COMPLETED") << everything(jobs[i]);
    EXPECT_EQ(field(jobs[i], "Restarts"), "1");
    EXPECT_THAT(codes(run), ElementsAre(75, 0));
    EXPECT_LT(attempts(run, "begin")[1].at("step"), kLong);
    EXPECT_GE(attempts(run, "begin")[1].at("step"), 3);
    expect_undisturbed(run, 2, kLong);
    const std::string output = text_of(join(run, "/log/job-", jobs[i], ".out"));
    EXPECT_THAT(output, HasSubstr("attempt 1 of job"));  // the second has not begun a new file
    EXPECT_THAT(output, HasSubstr("attempt 2 of job"));
  }
}

TEST_F(Slurm, ArrayOfSixWithOneBadConfiguration) {
  bring_up(3);
  fs::create_directories(path("configs"));
  for (int i = 0; i < 6; ++i) {
    std::ofstream out(path(join("configs/c", i, ".yaml")));
    out << text_of("run.yaml") << "data: {path: " << data().string()
        << "}\nrun: {dir: " << path(join("c", i)).string() << (i == 3 ? ", sede: 1" : "") << "}\n";
  }
  const std::string job = submit("sweep.sbatch", {}, {"--array=0-5%3"},
                                 {path("configs").string(), join("--set=train.steps=", kSteps)});
  for (int i = 0; i < 6; ++i) {
    const std::string task = join(job, "_", i);
    EXPECT_EQ(ends(task), i == 3 ? "FAILED" : "COMPLETED") << i << everything(task);
    EXPECT_EQ(field(task, "Restarts"), "0");
    EXPECT_EQ(test::saved_steps(path(join("c", i))).size(), i == 3 ? 0U : 1U);
    EXPECT_EQ(field(task, "ExitCode"), i == 3 ? "78:0" : "0:0");
  }
}

// A job of more urgency takes the node while a checkpoint is being written: TERM to the ranks.
TEST_F(Slurm, PreemptedDuringASave) {
  bring_up(1);
  const std::string slow = join("LD_PRELOAD=", AB_FAULTS);
  const std::string job =
      submit_run("run", {"AB_LAUNCHER=srun", slow, "AB_FAULTS=*@sync:.h5:*:sleep=1500"},
                 {"--ntasks-per-node=2"}, {kLongRun, "--set=checkpoint.every_steps=400"});
  ASSERT_TRUE(has_come_to("run", 400)) << everything(job);
  const std::string urgent = on_cluster({"sbatch", "--parsable", "--partition=urgent",
                                         "--exclusive", "--output=/dev/null", "--wrap=true"})
                                 .output;
  ASSERT_TRUE(test::soon([&] { return field(job, "PreemptTime") != "None"; }));
  EXPECT_THAT(test::saved_steps(path("run")), IsEmpty());  // it is being written
  ASSERT_EQ(ends(job), "COMPLETED") << everything(job);
  EXPECT_EQ(ends(urgent.substr(0, urgent.find('\n'))), "COMPLETED");
  EXPECT_THAT(codes("run"), ElementsAre(75, 0));
  EXPECT_GE(attempts("run", "begin")[1].at("step"), 400);
  expect_undisturbed("run", 2, kLong);
}

// Nobody would be left to requeue it after the limit.
TEST_F(Slurm, ASaveThatLastsTooLongCostsTheJobNotItsPlace) {
  bring_up(1);
  auto environment = pretend("run", "slow 10\n0 20\n");
  environment.push_back(join("SLURM_JOB_END_TIME=", std::time(nullptr) + 50));
  const std::string job = submit("train.sbatch", environment, {}, {"run.yaml"});
  ASSERT_TRUE(test::soon([&] { return fs::exists(path("run/waiting")); }, 30)) << everything(job);
  on_cluster({"scancel", "--batch", "--signal=USR1", job});
  ASSERT_EQ(ends(job), "COMPLETED") << everything(job);
  EXPECT_THAT(codes("run"), ElementsAre(75, 0));
  EXPECT_THAT(text_of("run/attempts.jsonl"), HasSubstr("did not end before the time limit"));
  EXPECT_TRUE(nothing_runs()) << slurm({"busy"}).output;
}

TEST_F(Slurm, ACancelledJobLeavesNothing) {
  bring_up(2);
  for (const std::string launcher : {"srun", "mpirun"}) {
    const std::string job =
        submit_run(launcher, {"AB_LAUNCHER=" + launcher}, {"--nodes=2"}, {kEndless});
    ASSERT_TRUE(has_come_to(launcher, 3)) << everything(job);
    on_cluster({"scancel", job});
    EXPECT_EQ(ends(job), "CANCELLED") << everything(job);
    EXPECT_TRUE(nothing_runs()) << slurm({"busy"}).output;
    EXPECT_EQ(attempts(launcher, "begin").size(), 1U);
    EXPECT_EQ(attempts(launcher, "end")[0].at("next"), "stop");
    EXPECT_FALSE(fs::exists(path(launcher) / "targets.json"));
  }
}

TEST_F(Slurm, TheStopFileEndsAJobForGood) {
  bring_up(1);
  const std::string job = submit_run("run", {}, {}, {kEndless});
  ASSERT_TRUE(has_come_to("run", 3)) << everything(job);
  test::spill(path("run") / "stop", "");
  EXPECT_EQ(ends(job), "FAILED") << everything(job);
  EXPECT_EQ(field(job, "ExitCode"), "130:0");
  EXPECT_EQ(field(job, "Restarts"), "0");
}

TEST_F(Slurm, RequeuesWithoutNewStepsComeToAnEnd) {
  bring_up(1);
  auto environment = pretend("run", "137\n137\n0 20\n");
  environment.emplace_back("AB_REQUEUES=1");
  const std::string job = submit("train.sbatch", environment, {}, {"run.yaml"});
  EXPECT_EQ(ends(job), "FAILED") << everything(job);
  EXPECT_EQ(field(job, "Restarts"), "1");
  EXPECT_THAT(codes("run"), ElementsAre(137, 137));
  EXPECT_THAT(text_of(join("run/log/job-", job, ".out")),
              HasSubstr("no new step in 2 attempts in a row, at step 0"));
}

TEST_F(Slurm, WhereRequeueingIsNotAllowedAnotherJobFollows) {
  bring_up(1);
  const std::string job = submit("train.sbatch", pretend("run", "75 10\n0 20\n"),
                                 {"--no-requeue", "--job-name=chained"}, {"run.yaml"});
  EXPECT_EQ(ends(job), "FAILED") << everything(job);
  ASSERT_TRUE(test::soon([&] { return codes("run").size() == 2; }, 30)) << everything(job);
  EXPECT_THAT(codes("run"), ElementsAre(75, 0));
  const auto begins = attempts("run", "begin");
  EXPECT_EQ(begins[1].at("job"), job);
  EXPECT_EQ(begins[1].at("attempt"), 2);
  const std::string next = std::to_string(std::stoi(job) + 1);
  EXPECT_EQ(ends(next), "COMPLETED") << everything(next);
  EXPECT_EQ(field(next, "JobName"), "chained");
}

TEST_F(Slurm, ASecondJobOnTheRunIsRefused) {
  bring_up(2);
  const std::string job = submit_run("run", {}, {}, {kEndless});
  ASSERT_TRUE(has_come_to("run", 3)) << everything(job);
  const std::string second = submit_run("run", {}, {}, {kEndless});
  EXPECT_EQ(ends(second), "FAILED");
  EXPECT_EQ(field(second, "ExitCode"), "74:0");
  EXPECT_EQ(field(second, "Restarts"), "0");
  EXPECT_THAT(text_of(join("run/log/job-", second, ".out")), HasSubstr("job " + job));
  EXPECT_EQ(field(job, "JobState"), "RUNNING");
}

// srun without the plugin starts ranks that each believe to be alone.
TEST_F(Slurm, RanksThatDoNotKnowOfEachOtherAreRefused) {
  bring_up(1);
  const Ended end = on_cluster({"srun", "--mpi=none", "-n", "2", AB_PROGRAM, "doctor"});
  EXPECT_EQ(end.exit_code, 78) << end.output;
  EXPECT_THAT(end.output, HasSubstr("srun has started 2 processes that do not know of each other"));
}

class SlurmSlow : public Slurm {
 protected:
  void SetUp() override {
    if (std::getenv("AB_SLOW") == nullptr) GTEST_SKIP() << "takes minutes; AB_SLOW=1 runs it";
    Slurm::SetUp();
  }
};

// A minute's limit, of which USR1 comes up to a minute before the end.
TEST_F(SlurmSlow, TheTimeLimitOfSlurmItself) {
  bring_up(2);
  constexpr int64_t kSlow = 150;
  const std::string job = submit_run(
      "run",
      {"AB_LAUNCHER=srun", join("LD_PRELOAD=", AB_FAULTS), "AB_FAULTS=*@read:.h5:*:sleep=30"},
      {"--nodes=2", "--time=1", "--signal=B:USR1@25"}, {join("--set=train.steps=", kSlow)});
  ASSERT_TRUE(has_come_to("run", 3)) << everything(job);
  ASSERT_TRUE(test::soon([&] { return attempts("run", "begin").size() >= 2; })) << everything(job);
  ASSERT_EQ(ends(job), "COMPLETED") << everything(job);
  EXPECT_GE(attempts("run", "end").size(), 2U);
  EXPECT_EQ(attempts("run", "end")[0].at("code"), 75);
  expect_undisturbed("run", 2, kSlow);
}

// The node with the batch script lives on: the ranks end in time, and one node goes on alone. srun
// leaves it to SLURM to notice; mpirun notices by itself, and its job is queued again at once.
TEST_F(SlurmSlow, ALostNodeIsDoneWithout) {
  bring_up(2);
  const std::string job =
      submit_run("run", {"AB_LAUNCHER=mpirun", "AB_RANKS_PER_NODE=2"},
                 {"--nodes=1-2", "--exclusive"}, {kLongRun, "--set=checkpoint.every_steps=20"});
  ASSERT_TRUE(has_come_to("run", 60)) << everything(job);
  ASSERT_EQ(attempts("run", "begin")[0].at("hosts"), "n[1-2]");
  ASSERT_EQ(slurm({"crash", "n2"}).exit_code, 0);
  ASSERT_EQ(ends(job), "COMPLETED") << everything(job);
  EXPECT_GE(attempts("run", "begin").size(), 2U);
  EXPECT_EQ(attempts("run", "begin").back().at("hosts"), "n1");
  EXPECT_EQ(attempts("run", "begin").back().at("ranks"), 2);
  EXPECT_GE(attempts("run", "begin").back().at("step"), 20);
  EXPECT_EQ(test::saved_steps(path("run")).front(), kLong);
}

// The node of the batch script dies: nobody is left to requeue but SLURM.
TEST_F(SlurmSlow, TheFirstNodeIsLost) {
  bring_up(2);
  const std::string job =
      submit_run("run", {"AB_LAUNCHER=srun", "AB_RANKS_PER_NODE=2"}, {"--nodes=1-2", "--exclusive"},
                 {"--set=train.steps=3000", "--set=checkpoint.every_steps=20"});
  ASSERT_TRUE(has_come_to("run", 60)) << everything(job);
  ASSERT_EQ(attempts("run", "begin")[0].at("hosts"), "n[1-2]");
  ASSERT_EQ(slurm({"crash", "n1"}).exit_code, 0);
  ASSERT_TRUE(test::soon([&] { return attempts("run", "begin").size() == 2; })) << everything(job);
  ASSERT_EQ(ends(job), "COMPLETED") << everything(job);
  EXPECT_EQ(attempts("run", "begin").back().at("hosts"), "n2");
  EXPECT_EQ(test::saved_steps(path("run")).front(), 3000);
}

}  // namespace
}  // namespace anabranch
