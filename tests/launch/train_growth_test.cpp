// A long job of four ranks: it needs no more memory, files and threads than in its youth, and who
// watches it changes nothing. AB_STEPS says how long (1200).
#include <algorithm>
#include <cstdlib>
#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "tests/data/folder.h"
#include "tests/launch/train_job.h"
#include "tests/support/checkpoints.h"

namespace anabranch {
namespace {
namespace fs = std::filesystem;

constexpr int kRanks = 4;

class TrainGrowth : public TrainJobs {
 protected:
  // What a process holds: the least of some looks, as a save or a scrape has its own for a while.
  struct Held {
    int64_t threads = 1 << 30, files = 1 << 30, resident_kib = int64_t{1} << 50;
  };

  static Held held_by(pid_t pid) {
    Held least;
    for (int look = 0; look < 20; ++look) {
      const std::string folder = join("/proc/", pid);
      std::error_code gone;
      const fs::directory_iterator files(folder + "/fd", gone);
      least.files = std::min<int64_t>(least.files, std::distance(begin(files), end(files)));
      least.threads = std::min(least.threads, number(folder, "Threads:"));
      least.resident_kib = std::min(least.resident_kib, number(folder, "VmRSS:"));
      test::pause_for(0.02);
    }
    return least;
  }

  [[nodiscard]] bool has_done(int64_t steps) const {
    constexpr double kLongest = 1800;  // seconds
    return test::soon(
        [&] {
          test::pause_for(0.1);
          const auto all = losses_by_step("run");
          return !all.empty() && all.rbegin()->first >= steps;
        },
        kLongest);
  }

 private:
  static int64_t number(const std::string& folder, const std::string& name) {
    std::ifstream in(folder + "/status");
    for (std::string line; std::getline(in, line);) {
      if (line.starts_with(name)) return std::atoll(line.c_str() + name.size());
    }
    return 0;
  }
};

TEST_F(TrainGrowth, NothingGrowsOverALongRun) {
  const char* text = std::getenv("AB_STEPS");
  const int64_t steps = text != nullptr ? std::atoll(text) : 1200;
  constexpr int64_t kSlack = 768;  // KiB: what libraries still fill at their own pace
  const auto job = train("run", kRanks,
                         {kEndless, "--set=train.log_every=50", "--set=checkpoint.every_steps=100",
                          "--set=eval.every_steps=100", "--set=eval.max_tokens=96",
                          "--set=parallel.check_every=10", "--set=metrics.listen=127.0.0.1:0"});
  ASSERT_TRUE(has_done(300)) << job->output();
  std::vector<Held> young;
  for (int rank = 0; rank < kRanks; ++rank) young.push_back(held_by(job->rank(rank)));
  ASSERT_TRUE(has_done(300 + steps)) << job->output();
  for (int rank = 0; rank < kRanks; ++rank) {
    SCOPED_TRACE(join("rank ", rank));
    const Held& before = young[static_cast<size_t>(rank)];
    const Held now = held_by(job->rank(rank));
    EXPECT_GT(before.files, 3);
    EXPECT_EQ(now.files, before.files);
    EXPECT_EQ(now.threads, before.threads);
    if (!AB_SANITIZED) {
      EXPECT_LT(now.resident_kib, before.resident_kib + kSlack);
    }
    RecordProperty(join("kib_of_rank_", rank), join(before.resident_kib, " to ", now.resident_kib));
  }
  test::spill(path("run") / "stop", "");
  EXPECT_EQ(finish(*job).exit_code, 130) << job->output();
}

// The endpoint scraped or off, lines often or seldom, validation, a trace: to the bit the same run.
TEST_F(TrainGrowth, WhoeverWatchesTheRunIsTheSame) {
  ASSERT_EQ(train_to_end("plain", kRanks, {"--set=train.log_every=1000"}).exit_code, 0);
  ASSERT_EQ(train_to_end("watched", kRanks,
                         {"--set=metrics.listen=127.0.0.1:0", "--set=eval.every_steps=2",
                          "--set=parallel.check_every=1", "--profile=3:9"})
                .exit_code,
            0);
  EXPECT_EQ(test::checkpoint_state(path("watched"), kSteps),
            test::checkpoint_state(path("plain"), kSteps));
  const auto all = losses_by_step("watched"), some = losses_by_step("plain");
  EXPECT_EQ(std::ssize(all), kSteps);
  EXPECT_EQ(std::ssize(some), 2);  // the first and the last
  for (const auto& [step, loss] : some) EXPECT_EQ(loss, all.at(step));
}

}  // namespace
}  // namespace anabranch
