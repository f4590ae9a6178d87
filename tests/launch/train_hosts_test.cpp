// Jobs across three hosts, each with an address of its own (tests/support/hosts.sh): links that are
// cut without a word, a host that dies, and going on with those that are left. AB_SEED says when
// and where (1).
#include <cmath>
#include <cstdlib>
#include <random>
#include <unistd.h>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "tests/launch/train_job.h"
#include "tests/support/checkpoints.h"
#include "tests/support/tolerance.h"

namespace anabranch {
namespace {

using testing::HasSubstr;

class TrainHosts : public TrainJobs {
 protected:
  void SetUp() override {
    const Ended able = hosts({"check"});
    if (able.exit_code != 0) GTEST_SKIP() << able.output;
    TrainJobs::SetUp();
    ASSERT_EQ(hosts({"up", "3"}).exit_code, 0);
    const char* seed = std::getenv("AB_SEED");
    random_.seed(seed != nullptr ? static_cast<unsigned>(std::atoll(seed)) : 1);
  }

  void TearDown() override { hosts({"down"}); }

  // What hosts.sh does, to its end.
  Ended hosts(const std::vector<std::string>& arguments) {
    std::vector<std::string> command = script();
    command.insert(command.end(), arguments.begin(), arguments.end());
    test::Process process(command, path(join("hosts-", ++calls_, ".txt")).string());
    return finish(process);
  }

  // A job of so many ranks on some of the hosts: streams over pairs of ranks of a host.
  std::unique_ptr<test::Process> start(int ranks, const std::string& used,
                                       std::vector<std::string> arguments) {
    std::vector<std::string> launcher = script();
    launcher.insert(launcher.begin() + 1, "AB_HOSTS_USED=" + used);
    launcher.insert(launcher.end(), {"mpirun", std::to_string(ranks)});
    arguments.insert(arguments.begin(), model_.begin(), model_.end());
    return train_by(launcher, "run", arguments);
  }

  // The losses of the run are those of one rank that nobody disturbs.
  void expect_losses_of_one_rank() {
    std::vector<std::string> arguments = model_;
    arguments.insert(arguments.end(),
                     {"--set=parallel.model=1", join("--set=train.steps=", steps_of("run"))});
    ASSERT_EQ(train_to_end("alone", 0, arguments).exit_code, 0);
    const auto want = losses_by_step("alone");
    for (const auto& [step, loss] : losses_by_step("run")) {
      EXPECT_NEAR(loss, want.at(step), test::kLayouts.relative * want.at(step)) << "step " << step;
    }
  }

  [[nodiscard]] int64_t steps_of(const std::string& run) const {
    return losses_by_step(run).rbegin()->first;
  }

  // The job must come to its end soon, with nothing left on any host.
  Ended lost(test::Process& job) {
    // 5 seconds of patience and 10 to end, and as much again for a busy machine.
    constexpr double kInTime = 30;
    EXPECT_TRUE(test::soon([&] { return job.ended().has_value(); }, kInTime)) << job.output();
    Ended end = finish(job);
    EXPECT_EQ(hosts({"pids"}).output, "");
    EXPECT_NE(end.exit_code, 0);
    return end;
  }

  // Waits for a step that chance picks.
  [[nodiscard]] bool has_come_somewhere() {
    return has_come_to("run", 8 + static_cast<int64_t>(random_() % 40));
  }

  std::mt19937& random() { return random_; }

 private:
  [[nodiscard]] static std::vector<std::string> script() {
    return {"env", join("AB_HOSTS=ab-", getpid()), AB_HOSTS_SCRIPT};
  }

  const std::vector<std::string> model_ = {kLevel,
                                           "--set=model.type=cmollm",
                                           "--set=model.streams=4",
                                           "--set=parallel.model=2",
                                           "--set=train.micro_batch=1",
                                           "--set=parallel.watchdog_seconds=5",
                                           "--set=checkpoint.every_steps=5"};
  std::mt19937 random_;
  int calls_ = 0;
};

// One of three hosts loses its link: the job ends and says so, and the other two go on from the
// newest checkpoint.
TEST_F(TrainHosts, ACutLinkEndsTheJobAndTwoHostsGoOn) {
  const int victim = 1 + static_cast<int>(random()() % 3);
  const auto job = start(6, "h1 h2 h3", {kEndless});
  ASSERT_TRUE(has_come_somewhere()) << job->output();
  ASSERT_EQ(hosts({"cut", join("h", victim)}).exit_code, 0);
  const Ended end = lost(*job);
  EXPECT_THAT(end.output, testing::AnyOf(HasSubstr("has not come: hung, cut off, or far behind"),
                                         HasSubstr("lost communication with a remote daemon")));
  EXPECT_THAT(text_of("run/plan.txt"), HasSubstr("6 on 3 hosts: h1 2, h2 2, h3 2"));
  EXPECT_THAT(text_of("run/plan.txt"), HasSubstr("data 3 x model 2"));

  const int64_t saved = test::saved_steps(path("run")).front();
  const std::string left = victim == 1 ? "h2 h3" : victim == 2 ? "h1 h3" : "h1 h2";
  const auto again =
      start(4, left, {"--resume=must", join("--set=train.steps=", steps_of("run") + 10)});
  const Ended good = finish(*again);
  EXPECT_EQ(good.exit_code, 0) << good.output;
  EXPECT_THAT(good.output, HasSubstr(join("resumed at step ", saved, " from ")));
  const auto plan = nlohmann::json::parse(text_of("run/plan.json"));
  EXPECT_EQ(plan.at("hosts").size(), 2U);
  EXPECT_EQ(plan.at("ranks"), 4);
  expect_losses_of_one_rank();
}

// The launcher, on the first host, reaches both and notices nothing: the ranks themselves do.
TEST_F(TrainHosts, ALinkThatTheLauncherDoesNotSeeEndsTheJobWith69) {
  const auto job = start(6, "h1 h2 h3", {kEndless});
  ASSERT_TRUE(has_come_somewhere()) << job->output();
  ASSERT_EQ(hosts({"split", "h2", "h3"}).exit_code, 0);
  const Ended end = lost(*job);
  EXPECT_EQ(end.exit_code, 69) << end.output;
  EXPECT_THAT(end.output, HasSubstr("anabranch: error: rank "));
  EXPECT_THAT(end.output, testing::ContainsRegex("(waited|did not move).* s"));
  int told = 0;
  for (int rank = 0; rank < 6; ++rank) {
    const std::string where = text_of(join("run/log/watchdog-rank-000", rank, ".json"));
    if (where.empty()) continue;
    ++told;
    EXPECT_EQ(nlohmann::json::parse(where).at("host"), join("h", 1 + rank / 2));
  }
  EXPECT_GE(told, 4);
}

// A host that dies with all its ranks.
TEST_F(TrainHosts, AHostThatDiesEndsTheJobAndTwoGoOn) {
  const auto job = start(3, "h1 h2 h3", {kEndless, "--set=parallel.model=1"});
  ASSERT_TRUE(has_come_somewhere()) << job->output();
  ASSERT_EQ(hosts({"crash", "h3"}).exit_code, 0);
  lost(*job);
  const auto again = start(
      2, "h1 h2",
      {"--resume=must", "--set=parallel.model=1", join("--set=train.steps=", steps_of("run") + 5)});
  const Ended good = finish(*again);
  EXPECT_EQ(good.exit_code, 0) << good.output;
  expect_losses_of_one_rank();
}

}  // namespace
}  // namespace anabranch
