// Kills at random moments, saves included. AB_KILLS says how many (20), AB_SEED which moments (1).
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <map>
#include <random>

#include "core/base/error.h"
#include "tests/launch/train_job.h"
#include "tests/support/checkpoints.h"

namespace anabranch {
namespace {

using State = std::map<std::string, std::string>;

int64_t number_from(const char* variable, int64_t otherwise) {
  const char* text = std::getenv(variable);
  return text != nullptr ? std::atoll(text) : otherwise;
}

// Saves all the time, each in several syncs.
const std::vector<std::string> kSaving = {"--set=checkpoint.every_steps=1",
                                          "--set=checkpoint.keep_last=2"};

constexpr int kRanks = 4;
// One rank, all of them, or everything: half of the kills are of one.
constexpr uint32_t kAllRanks = 6, kChoices = 8;

class KillTest : public TrainJobs {
 protected:
  // LeakSanitizer searches a rank at its end by a second process, which is one of the job's
  // members: if that is killed, the rank waits for it forever. Other tests search.
  void SetUp() override {
    TrainJobs::SetUp();
    const char* options = std::getenv("ASAN_OPTIONS");
    const std::string given = options != nullptr ? std::string(options) + ":" : "";
    setenv("ASAN_OPTIONS", (given + "detect_leaks=0").c_str(), 1);
  }

  // mpirun ends the ranks that are left: first kindly, then after these seconds. Mostly at once,
  // which makes the test short.
  static void set_grace(int seconds) {
    setenv("OMPI_MCA_odls_base_sigkill_timeout", std::to_string(seconds).c_str(), 1);
  }

  // Open MPI's mpirun may hang when a rank dies while it connects to it. With no rank left that is
  // not the run's fault: mpirun is killed, which counts as its exit, and the case is counted.
  Ended end_of(test::Process& job) {
    constexpr double kLauncherSeconds = 30;
    const bool over = test::soon([&] { return job.ended().has_value(); }, kLauncherSeconds);
    bool alone = true;
    for (int rank = 0; rank < kRanks; ++rank) alone = alone && job.rank(rank) == 0;
    if (!over && alone) {
      ++launcher_hangs_;
      kill(job.id(), SIGKILL);
    }
    return finish(job);
  }

  // Whether mpirun itself died of what it does about a rank that was killed, once in some 2,000:
  // when it passes input on to a rank that is gone, or with a wild pointer as it ends. The stack it
  // then prints is its own; a rank's crash is told as that rank's signal.
  static bool mpirun_died(const Ended& end) {
    if (end.exit_code == 128 + SIGPIPE) return true;
    return end.exit_code == 128 + SIGSEGV && end.output.find("mpirun(+0x") != std::string::npos &&
           end.output.find("exited on signal 11") == std::string::npos;
  }

  int64_t launcher_hangs_ = 0, launcher_deaths_ = 0;

  // Kills one rank, all of them, or the whole job at once.
  void kill_some(const test::Process& job, uint32_t choice) const {
    std::vector<pid_t> victims;
    if (choice < kRanks) {
      victims = {job.rank(static_cast<int>(choice))};
    } else if (choice < kAllRanks) {
      for (int rank = 0; rank < kRanks; ++rank) victims.push_back(job.rank(rank));
    } else {
      victims = job.members();
    }
    for (const pid_t pid : victims) {
      if (pid > 0) kill(pid, SIGKILL);
    }
  }
};

// However often ranks are killed, the run that is gone on with ends at the undisturbed run's
// weights and moments, bit for bit.
TEST_F(KillTest, KilledRunsEndAsUndisturbedOnes) {
  const auto begin = std::chrono::steady_clock::now();
  const Ended undisturbed = train_to_end("undisturbed", kRanks, kSaving);
  ASSERT_EQ(undisturbed.exit_code, 0) << undisturbed.output;
  const double length =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const State want = test::checkpoint_state(path("undisturbed"), kSteps);

  const int64_t kills = number_from("AB_KILLS", 20);
  std::mt19937 random(static_cast<uint32_t>(number_from("AB_SEED", 1)));
  std::uniform_real_distribution<double> moment(0, length);
  int64_t killed = 0, whole_runs = 0, steps_lost = 0;
  const auto compare = [&] {
    ASSERT_EQ(test::saved_steps(path("killed")).front(), kSteps);
    ASSERT_EQ(test::checkpoint_state(path("killed"), kSteps), want);
    ++whole_runs;
  };
  while (killed < kills && !HasFailure()) {
    const double at = moment(random);
    const uint32_t choice = random() % kChoices;
    set_grace(random() % 8 == 0 ? 1 : 0);
    const auto job = train("killed", kRanks, kSaving);
    const std::string what = join("kill ", killed + 1, " after ", at, " s, choice ", choice);
    test::soon([&] { return job->ended().has_value(); }, at);
    // Before the ranks are there a kill would test mpirun alone.
    test::soon([&] { return job->rank(0) > 0 || job->ended().has_value(); });
    kill_some(*job, choice);
    const Ended end = end_of(*job);
    if (end.exit_code == 0) {
      compare();
      std::filesystem::remove_all(path("killed"));
      continue;
    }
    ++killed;
    const bool launcher_died = (choice == 0 || choice >= kRanks) && mpirun_died(end);
    launcher_deaths_ += launcher_died;
    ASSERT_TRUE(launcher_died || end.exit_code == 128 + SIGKILL)
        << what << ": exit code " << end.exit_code << "\n"
        << end.output;
    const auto steps = test::saved_steps(path("killed"));
    if (!steps.empty()) test::checkpoint_state(path("killed"), steps.front());
    steps_lost += steps.empty();
  }
  const Ended last = train_to_end("killed", kRanks, kSaving);
  ASSERT_EQ(last.exit_code, 0) << last.output;
  compare();
  RecordProperty("kills", std::to_string(killed));
  RecordProperty("whole_runs", std::to_string(whole_runs));
  std::cout << killed << " kills, " << whole_runs << " runs came to their end, " << steps_lost
            << " kills before the first save, " << launcher_hangs_ << " times mpirun hung, "
            << launcher_deaths_ << " times it died\n";
}

}  // namespace
}  // namespace anabranch
