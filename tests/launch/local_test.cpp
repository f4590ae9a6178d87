// launch/local.sh with ranks that really train.
#include <csignal>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>

#include "core/base/error.h"
#include "tests/launch/train_job.h"
#include "tests/support/checkpoints.h"

namespace anabranch {
namespace {

using testing::HasSubstr;

class Local : public TrainJobs {
 protected:
  std::unique_ptr<test::Process> start(const std::string& run, int64_t steps) {
    std::ofstream(path("site.env"))
        << "AB_PROGRAM=" << AB_PROGRAM << "\nAB_MPIRUN=(--oversubscribe)\n";
    const std::string script = AB_SOURCE_DIR "/launch/local.sh";
    const std::vector<std::string> words{script,
                                         "-n",
                                         "2",
                                         path("run.yaml").string(),
                                         "--set=run.dir=" + path(run).string(),
                                         "--set=data.path=" + data().string(),
                                         join("--set=train.steps=", steps),
                                         kLevel};
    return std::make_unique<test::Process>(
        words, path("local.txt").string(),
        test::Process::Environment{{"AB_SITE", path("site.env").string()},
                                   {"OMPI_ALLOW_RUN_AS_ROOT", "1"},
                                   {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"}});
  }
};

// A signal as before a time limit, and a rank that is killed: the run goes on by itself, and comes
// to the weights of one that nobody has disturbed.
TEST_F(Local, GoesOnAfterASignalAndALostRank) {
  constexpr int64_t kLong = 1000;
  const auto job = start("run", kLong);
  ASSERT_TRUE(has_come_to("run", 3)) << job->output();
  kill(job->id(), SIGUSR1);
  const auto attempts = [&] {
    const std::string text = text_of("run/attempts.jsonl");
    return std::count(text.begin(), text.end(), '\n');
  };
  ASSERT_TRUE(test::soon([&] { return attempts() == 3; })) << job->output();
  const std::ptrdiff_t before = std::ssize(losses("run"));
  ASSERT_TRUE(has_come_to("run", before + 3)) << job->output();
  kill(job->rank(1), SIGKILL);
  const Ended end = finish(*job);
  EXPECT_EQ(end.exit_code, 0) << end.output;
  EXPECT_EQ(attempts(), 6);
  EXPECT_THAT(end.output, HasSubstr("again: saved on request (exit code 75"));
  EXPECT_THAT(end.output, HasSubstr("again: ended by a signal or the launcher (code 137)"));
  const Ended whole = train_to_end("whole", 2, {kLevel, join("--set=train.steps=", kLong)});
  ASSERT_EQ(whole.exit_code, 0) << whole.output;
  EXPECT_EQ(test::checkpoint_state(path("run"), kLong),
            test::checkpoint_state(path("whole"), kLong));
}

// Ctrl-C: mpirun, left to itself, would kill the ranks.
TEST_F(Local, AnInterruptSavesAndEnds) {
  const auto job = start("run", 1000000);
  ASSERT_TRUE(has_come_to("run", 3)) << job->output();
  kill(-job->id(), SIGINT);
  const Ended end = finish(*job);
  EXPECT_EQ(end.exit_code, 130) << end.output;
  const int64_t saved = test::saved_steps(path("run")).front();
  EXPECT_EQ(saved, stopped_at("run", 1));
  EXPECT_GE(saved, 3);
}

}  // namespace
}  // namespace anabranch
