// Ranks that hang, hold up the others, or are not like the others.
#include <csignal>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/host_name.h"
#include "tests/data/folder.h"
#include "tests/launch/train_job.h"

namespace anabranch {
namespace {

using testing::HasSubstr;

class TrainHang : public TrainJobs {
 protected:
  [[nodiscard]] nlohmann::json where(const std::string& run, int rank) const {
    const std::string name = join(run, "/log/watchdog-rank-000", rank, ".json");
    return nlohmann::json::parse(text_of(name));
  }

  static constexpr const char* kFiveSeconds = "--set=parallel.watchdog_seconds=5";
};

// The hung one cannot say where it is: the others do, and name it.
TEST_F(TrainHang, ARankThatStopsForGoodEndsTheJob) {
  for (const int hung : {0, 1}) {
    const std::string run = join("run", hung);
    const auto job = train(run, 4, {kEndless, kFiveSeconds});
    ASSERT_TRUE(has_come_to(run, 3)) << job->output();
    kill(job->rank(hung), SIGSTOP);
    const Ended end = finish(*job);
    EXPECT_EQ(end.exit_code, 69) << end.output;
    EXPECT_THAT(end.output, HasSubstr(join("rank ", hung, " on ", host_name(), " has not come")));
    for (int rank = 0; rank < 4; ++rank) {
      if (rank == hung) continue;
      const nlohmann::json document = where(run, rank);
      EXPECT_EQ(document.at("rank"), rank);
      EXPECT_EQ(document.at("host"), host_name());
      EXPECT_GE(document.at("step"), 3);
      EXPECT_NE(document.at("collective_started"), document.at("collective_finished"));
      EXPECT_THAT(std::string(document.at("version")), testing::StartsWith("anabranch "));
    }
  }
}

TEST_F(TrainHang, ARankThatStopsForTenSecondsDoesNot) {
  const auto job = train("run", 2, {kEndless});
  ASSERT_TRUE(has_come_to("run", 3)) << job->output();
  kill(job->rank(1), SIGSTOP);
  test::pause_for(10);
  const auto before = std::ssize(losses("run"));
  kill(job->rank(1), SIGCONT);
  ASSERT_TRUE(has_come_to("run", before + 3)) << job->output();
  test::spill(path("run") / "stop", "");
  EXPECT_EQ(finish(*job).exit_code, 130) << job->output();
}

// All ranks are stopped and go on, as a scheduler does: nobody is to blame.
TEST_F(TrainHang, AJobThatIsSuspendedGoesOn) {
  const auto job = train("run", 2, {kEndless, "--set=parallel.watchdog_seconds=3"});
  ASSERT_TRUE(has_come_to("run", 3)) << job->output();
  const std::vector<pid_t> ranks{job->rank(0), job->rank(1)};
  for (const pid_t pid : ranks) kill(pid, SIGSTOP);
  test::pause_for(6);
  const auto before = std::ssize(losses("run"));
  for (const pid_t pid : ranks) kill(pid, SIGCONT);
  ASSERT_TRUE(has_come_to("run", before + 3)) << job->output();
  test::spill(path("run") / "stop", "");
  EXPECT_EQ(finish(*job).exit_code, 130) << job->output();
}

// Of two ranks: of more ranks than cores a busy machine makes any look slow.
TEST_F(TrainHang, ASlowRankIsNamed) {
  const auto job = train("run", 2, {kEndless, "--set=train.log_every=20"});
  ASSERT_TRUE(has_come_to("run", 2)) << job->output();
  const std::string named = join("slow: rank 1 on ", host_name(), " has computed ");
  const pid_t slow = job->rank(1);
  // It runs for a fifth of the time.
  const bool found = test::soon(
      [&] {
        kill(slow, SIGSTOP);
        test::pause_for(0.04);
        kill(slow, SIGCONT);
        test::pause_for(0.01);
        return text_of("run/log/rank-0000.log").find(named) != std::string::npos;
      },
      30);
  EXPECT_TRUE(found) << job->output();
  EXPECT_THAT(text_of("run/metrics.jsonl"), HasSubstr("\"compute_slowest_ratio\":"));
  test::spill(path("run") / "stop", "");
  EXPECT_EQ(finish(*job).exit_code, 130) << job->output();
}

TEST_F(TrainHang, RanksOfUnlikeConfigurationsAreRefusedBeforeTheyTrain) {
  const auto job = train_unlike("run", {{}, {"--set=optim.lr=0.25"}});
  const Ended end = finish(*job);
  EXPECT_EQ(end.exit_code, 78) << end.output;
  EXPECT_THAT(end.output, HasSubstr("the configuration differs between ranks: rank 0 on"));
  EXPECT_THAT(end.output, HasSubstr("lr: 0.25"));
  const std::string error = "anabranch: error: ";
  const size_t first = end.output.find(error);
  ASSERT_NE(first, std::string::npos);
  EXPECT_EQ(end.output.find(error, first + 1), std::string::npos) << end.output;
  EXPECT_FALSE(std::filesystem::exists(path("run")));
}

TEST_F(TrainHang, ThePlanIsPrintedAndKept) {
  const Ended end = train_to_end("run", 3, {"--set=train.steps=2", "--set=train.batch_tokens=144"});
  ASSERT_EQ(end.exit_code, 0) << end.output;
  const std::string table = text_of("run/plan.txt");
  EXPECT_THAT(table, HasSubstr(join("  ranks    3 on 1 host: ", host_name(), " 3\n")));
  EXPECT_THAT(end.output, HasSubstr(table));
  const auto json = nlohmann::json::parse(text_of("run/plan.json"));
  EXPECT_EQ(json.at("ranks"), 3);
  EXPECT_EQ(json.at("data"), 3);
  EXPECT_THAT(std::string(json.at("why_model")), HasSubstr("auto: "));
  EXPECT_THAT(text_of("run/log/rank-0000.log"), HasSubstr("  mesh     data 3 x model 1"));
}

}  // namespace
}  // namespace anabranch
