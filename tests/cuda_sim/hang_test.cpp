// Ranks with GPUs whose communication hangs for good, and the end of it too: as processes, each of
// which has to die by itself.
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <unistd.h>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "tests/cuda_sim/sim.h"
#include "tests/data/folder.h"
#include "tests/runtime/training.h"
#include "tests/support/process.h"

namespace anabranch {
namespace {

using testing::HasSubstr;

constexpr const char* kChild = "AB_SIM_HANGING_RUN";

// What happens at a step of which rank 0 has begun to communicate.
struct Hang {
  const char* name;
  void (*happen)();
  std::vector<std::string> reason;  // that the watchdog writes
};

const Hang kHangs[] = {
    // The host waits for its GPU, which never comes to what it waits for.
    {"silent",
     [] { cuda_sim::hang_network(0); },
     {"no progress for", "; all_reduce_sum #", "waited 1 s on the GPU"}},
    // The host hears of it in its next call.
    {"told", [] { cuda_sim::break_network(0); }, {"network error"}},
};

// This process is the job: two ranks, on simulated GPUs.
[[noreturn]] void train_until_it_hangs(const Hang& hang, const std::string& folder) {
  Config config = load_config(folder + "/run.yaml");
  config.run.dir = folder + "/" + hang.name;
  test::TrainingOptions options{.ranks = 2, .device = {Device::Kind::kCuda, 0}};
  options.after_step = [&](int rank, int64_t step, StopRequest&) {
    if (rank != 0 || step != 3) return;
    cuda_sim::hang_aborts(true);
    hang.happen();
  };
  options.give_up = [](int code) { _exit(code); };
  options.failed = [](const Error& error) {
    std::cerr << error.what() << std::endl;
    _exit(static_cast<int>(error.fault()));
  };
  test::run_training(config, options);
  _exit(0);
}

// The process ends with 69, and has written down what it waited for.
TEST(SimHangs, AJobWhoseAbortHangsDiesByTheDeadline) {
  if (const char* folder = std::getenv(kChild)) {
    const std::string name = std::filesystem::path(folder).filename();
    for (const Hang& hang : kHangs) {
      if (name == hang.name)
        train_until_it_hangs(hang, std::filesystem::path(folder).parent_path());
    }
  }
  const test::TrainingFolder folder;
  Config config = folder.config("run", 1000);
  config.parallel.deadline_seconds = 1;
  test::spill(folder / "run.yaml", dump_config(config));
  std::vector<std::unique_ptr<test::Process>> jobs;
  for (const Hang& hang : kHangs) {
    jobs.push_back(std::make_unique<test::Process>(
        std::vector<std::string>{"/proc/self/exe", "--gtest_filter=SimHangs.AJob*"},
        (folder / (std::string(hang.name) + ".txt")).string(),
        test::Process::Environment{{kChild, (folder / hang.name).string()}}));
  }
  for (size_t i = 0; i < jobs.size(); ++i) {
    const std::filesystem::path run = folder / kHangs[i].name;
    EXPECT_EQ(jobs[i]->wait(), 69) << jobs[i]->output();
    const auto where = nlohmann::json::parse(test::slurp(run / "log/watchdog-rank-0000.json"));
    const std::string reason = where.at("reason");
    for (const std::string& part : kHangs[i].reason) EXPECT_THAT(reason, HasSubstr(part));
    EXPECT_THAT(std::string(where.at("collective_started")), HasSubstr(" #"));
  }
}

}  // namespace
}  // namespace anabranch
