#include "runtime/watchdog.h"

#include <atomic>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "tests/data/folder.h"
#include "tests/runtime/training.h"
#include "tests/support/process.h"

namespace anabranch {
namespace {

using testing::HasSubstr;

std::string file_of(int rank) { return join("log/watchdog-rank-000", rank, ".json"); }

// A rank of its own with a run directory.
class Alone : public testing::Test {
 protected:
  Watchdog::Options quick() {
    return {.seconds = 0.1,
            .long_seconds = 1000,
            .grace = 0.1,
            .version = "anabranch 9",
            .give_up = [this](int code) { code_ = code; }};
  }

  nlohmann::json document(const std::string& name) const {
    return nlohmann::json::parse(test::slurp(dir_ / name));
  }

  [[nodiscard]] bool gave_up() const {
    return test::soon([&] { return code_ != 0; });
  }

  test::TempDir dir_;
  RunDirectory directory_{dir_.path(), false};
  std::unique_ptr<Group> world_ = self_group();
  RankContext context_;
  std::atomic<int> code_{0};
};

TEST_F(Alone, ARankThatHangsWritesWhereItIsAndIsEnded) {
  Trace trace;
  trace.set_op("softmax");
  context_.trace = &trace;
  context_.heartbeat->set_step(7);
  context_.heartbeat->at("backward");
  Watchdog watchdog(*world_, context_, directory_, quick());
  watchdog.step_done(0.01);
  ASSERT_TRUE(gave_up());
  EXPECT_EQ(code_, 69);
  const nlohmann::json where = document(file_of(0));
  EXPECT_EQ(where.at("rank"), 0);
  EXPECT_EQ(where.at("step"), 7);
  EXPECT_EQ(where.at("phase"), "backward");
  EXPECT_EQ(where.at("op"), "softmax");
  EXPECT_EQ(where.at("collective_started"), "none");
  EXPECT_EQ(where.at("process"), getpid());
  EXPECT_EQ(where.at("version"), "anabranch 9");
  EXPECT_GT(where.at("seconds_without_progress"), 1);
  EXPECT_THAT(std::string(where.at("reason")),
              HasSubstr("no progress for 1 s in step 7, backward"));
  EXPECT_FALSE(std::string(where.at("host")).empty());
  EXPECT_THAT(std::string(where.at("time")), testing::MatchesRegex("....-..-..T..:..:..Z"));
}

TEST_F(Alone, EachIncidentHasAFileOfItsOwn) {
  test::spill(dir_ / file_of(0), "an older one");
  Watchdog watchdog(*world_, context_, directory_, quick());
  watchdog.lost("rank 2 on b has not come");
  EXPECT_EQ(test::slurp(dir_ / file_of(0)), "an older one");
  EXPECT_EQ(document("log/watchdog-rank-0000.2.json").at("reason"), "rank 2 on b has not come");
  EXPECT_TRUE(gave_up());  // what unwinds may hang too
}

TEST_F(Alone, ARankThatMovesOnIsLeftAlone) {
  Watchdog::Options options = quick();
  options.seconds = 1;
  Watchdog watchdog(*world_, context_, directory_, options);
  watchdog.step_done(0.01);
  for (int i = 0; i < 60; ++i) {
    context_.heartbeat->at("evaluate");
    test::pause_for(0.05);
  }
  EXPECT_EQ(code_, 0);
  EXPECT_FALSE(std::filesystem::exists(dir_ / file_of(0)));
}

TEST_F(Alone, StepsSetTheLimit) {
  Watchdog::Options options{.long_seconds = 6000};
  const auto limit_after = [&](const std::vector<double>& steps) {
    context_.heartbeat->at("forward");
    Watchdog watchdog(*world_, context_, directory_, options);
    for (const double seconds : steps) watchdog.step_done(seconds);
    return watchdog.limit();
  };
  EXPECT_EQ(limit_after({}), 6000);
  EXPECT_EQ(limit_after({0.1, 0.1}), 60);
  EXPECT_EQ(limit_after({9, 0.1, 10, 11, 100}), 100);
  options.seconds = 5;
  EXPECT_EQ(limit_after({}), 6000);
  EXPECT_EQ(limit_after({9, 10, 11}), 5);
  options.seconds = -1;
  EXPECT_EQ(limit_after({9, 10, 11}), 0);
  options.seconds = 5;
  Watchdog watchdog(*world_, context_, directory_, options);
  watchdog.step_done(1);
  context_.heartbeat->at("save", Heartbeat::Pace::kLong);
  EXPECT_EQ(watchdog.limit(), 6000);
}

TEST_F(Alone, ItCanBeOff) {
  Watchdog::Options options = quick();
  options.seconds = -1;
  Watchdog watchdog(*world_, context_, directory_, options);
  watchdog.step_done(0.01);
  watchdog.lost("something");
  test::pause_for(1.5);
  EXPECT_EQ(code_, 0);
  EXPECT_FALSE(std::filesystem::exists(dir_ / file_of(0)));
}

// Ranks that meet again and again: progress at the pace of steps, none while a save is waited for.
TEST(Watchdog, CollectivesAreProgressAtThePaceOfStepsOnly) {
  for (const Heartbeat::Pace pace : {Heartbeat::Pace::kStep, Heartbeat::Pace::kLong}) {
    const test::TempDir dir;
    bool written = false;
    try {
      run_on_threads(2, [&](Group& world) {
        const RunDirectory directory(dir.path(), false);
        RankContext context;
        context.rank = world.rank();
        context.heartbeat->at("save", pace);
        Watchdog watchdog(world, context, directory, {.seconds = 0.5, .long_seconds = 0.5});
        watchdog.step_done(0.01);
        for (int i = 0; i < 150; ++i) {
          world.barrier();
          test::pause_for(0.02);
        }
      });
    } catch (const Error& error) {
      EXPECT_EQ(error.fault(), Fault::kPeer);
      EXPECT_THAT(error.what(), HasSubstr("no progress"));
      written =
          std::filesystem::exists(dir / file_of(0)) || std::filesystem::exists(dir / file_of(1));
    }
    EXPECT_EQ(written, pace == Heartbeat::Pace::kLong);
  }
}

// One of three ranks hangs between two steps: all write where they are, and the run ends with the
// hung one's name.
TEST(Watchdog, AHungRankOfARunIsNamed) {
  const test::TrainingFolder folder;
  Config config = folder.config("run", 40);
  config.parallel.watchdog_seconds = 1;
  const std::filesystem::path run = config.run.dir;
  test::TrainingOptions options;
  options.ranks = 3;
  options.after_step = [&](int rank, int64_t step, StopRequest&) {
    if (rank != 1 || step != 5) return;
    EXPECT_TRUE(test::soon([&] { return std::filesystem::exists(run / file_of(1)); }));
  };
  test::expect_error(Fault::kPeer, {"rank 1"}, [&] { test::run_training(config, options); });
  std::vector<nlohmann::json> where;
  for (int rank = 0; rank < 3; ++rank) {
    where.push_back(nlohmann::json::parse(test::slurp(run / file_of(rank))));
    EXPECT_EQ(where.back().at("rank"), rank);
  }
  EXPECT_THAT(std::string(where[0].at("reason")), HasSubstr("waited 1 s for rank 1"));
  EXPECT_EQ(where[0].at("step"), 6);
  EXPECT_EQ(where[1].at("step"), 5);
  EXPECT_THAT(std::string(where[1].at("reason")), HasSubstr("no progress"));
  EXPECT_THAT(std::string(where[1].at("op")), testing::Not("none"));
  EXPECT_NE(where[0].at("collective_started"), where[0].at("collective_finished"));
  EXPECT_EQ(where[1].at("collective_started"), where[1].at("collective_finished"));
}

}  // namespace
}  // namespace anabranch
