// Jobs on a small SLURM cluster (tests/support/slurm.sh), which a test brings up for itself.
#pragma once

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <string>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "tests/launch/train_job.h"
#include "tests/support/checkpoints.h"

namespace anabranch {

class Slurm : public TrainJobs {
 protected:
  void SetUp() override {
    if (AB_SANITIZED != 0)
      GTEST_SKIP() << "the same program as in TrainStop, and many times slower";
    const Ended able = slurm({"check"});
    if (able.exit_code != 0) GTEST_SKIP() << able.output;
    TrainJobs::SetUp();
    // All nodes share this machine's loopback and its cores.
    std::ofstream(path("site.env")) << "export OMPI_MCA_mpi_yield_when_idle=1\n"
                                       "export OMPI_MCA_btl_tcp_if_include=lo\n"
                                       "export OMPI_MCA_oob_tcp_if_include=lo\n";
  }

  void TearDown() override { slurm({"down"}); }

  void bring_up(int nodes) { ASSERT_EQ(slurm({"up", std::to_string(nodes)}).exit_code, 0); }

  // What slurm.sh does, to its end.
  Ended slurm(const std::vector<std::string>& arguments) {
    std::vector<std::string> command = {"env", join("AB_SLURM=ab-", getpid()), AB_SLURM_SCRIPT};
    command.insert(command.end(), arguments.begin(), arguments.end());
    test::Process process(command, path(join("slurm-", ++calls_, ".txt")).string());
    return finish(process);
  }

  Ended on_cluster(std::vector<std::string> command) {
    command.insert(command.begin(), "run");
    return slurm(command);
  }

  // Submits launch/SCRIPT and returns the job's id.
  //
  //   environment  "NAME=value" of the submitting shell
  //   options      of sbatch
  //   arguments    of the script
  std::string submit(const std::string& script, const std::vector<std::string>& environment,
                     const std::vector<std::string>& options,
                     const std::vector<std::string>& arguments) {
    std::vector<std::string> command = {"env", "AB_SITE=" + path("site.env").string()};
    if (!std::ranges::any_of(environment,
                             [](const std::string& e) { return e.starts_with("AB_PROGRAM="); })) {
      command.push_back(join("AB_PROGRAM=", AB_PROGRAM));
    }
    command.insert(command.end(), environment.begin(), environment.end());
    command.insert(command.end(), {AB_SOURCE_DIR "/launch/submit.sh", "--parsable",
                                   "--output=" + path("slurm-%j.out").string()});
    command.insert(command.end(), options.begin(), options.end());
    command.push_back(AB_SOURCE_DIR "/launch/" + script);
    command.insert(command.end(), arguments.begin(), arguments.end());
    const Ended end = on_cluster(command);
    EXPECT_EQ(end.exit_code, 0) << end.output;
    return end.output.substr(0, end.output.find('\n'));
  }

  // The same of a run of this test.
  std::string submit_run(const std::string& run, const std::vector<std::string>& environment,
                         const std::vector<std::string>& options,
                         const std::vector<std::string>& sets = {}) {
    std::vector<std::string> arguments = {
        path("run.yaml").string(), "--set=run.dir=" + path(run).string(),
        "--set=data.path=" + data().string(), kLevel, "--set=parallel.threads=1"};
    if (sets.empty()) arguments.push_back(join("--set=train.steps=", kSteps));
    arguments.insert(arguments.end(), sets.begin(), sets.end());
    return submit("train.sbatch", environment, options, arguments);
  }

  // A field of a job, as scontrol calls it.
  std::string field(const std::string& job, const std::string& name) {
    const std::string text = on_cluster({"scontrol", "-o", "show", "job", job}).output;
    std::smatch found;
    const std::regex pattern("\\b" + name + "=([^ \n]*)");
    return std::regex_search(text, found, pattern) ? found[1].str() : "";
  }

  // Waits until the job is in one of the states, and returns it.
  std::string comes_to(const std::string& job, const std::string& states) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(100);
    for (;;) {
      std::string state = field(job, "JobState");
      if (std::regex_match(state, std::regex(states))) return state;
      if (std::chrono::steady_clock::now() > until) return "still " + state;
      test::pause_for(0.2);
    }
  }

  std::string ends(const std::string& job) {
    return comes_to(job, "COMPLETED|FAILED|CANCELLED|TIMEOUT|NODE_FAIL|PREEMPTED");
  }

  // All that a job has printed, for messages.
  [[nodiscard]] std::string everything(const std::string& job) const {
    std::string text = text_of("slurm-" + job + ".out");
    for (const auto& run : std::filesystem::directory_iterator(path(""))) {
      text += text_of(join(run.path().filename().string(), "/log/job-", job, ".out"));
    }
    return text;
  }

  [[nodiscard]] std::vector<nlohmann::json> attempts(const std::string& run,
                                                     const std::string& event) const {
    std::vector<nlohmann::json> all;
    std::istringstream in(text_of(run + "/attempts.jsonl"));
    for (std::string line; std::getline(in, line);) {
      const auto attempt = nlohmann::json::parse(line);
      if (attempt.at("event") == event) all.push_back(attempt);
    }
    return all;
  }

  [[nodiscard]] std::vector<int> codes(const std::string& run) const {
    std::vector<int> all;
    for (const auto& end : attempts(run, "end")) all.push_back(end.at("code"));
    return all;
  }

  // The run's last checkpoint is that of a run which nobody disturbs.
  void expect_undisturbed(const std::string& run, int ranks, int64_t steps) {
    if (!std::filesystem::exists(path("whole"))) {
      const Ended whole = train_to_end(
          "whole", ranks, {kLevel, "--set=parallel.threads=1", join("--set=train.steps=", steps)});
      ASSERT_EQ(whole.exit_code, 0) << whole.output;
    }
    EXPECT_EQ(test::checkpoint_state(path(run), steps),
              test::checkpoint_state(path("whole"), steps));
  }

  // A run directory for tests/support/fake_program.sh, and the environment of its job.
  std::vector<std::string> pretend(const std::string& run, const std::string& script) {
    std::filesystem::create_directories(path(run));
    std::ofstream(path(run) / "script") << script;
    return {"FAKE_RUN=" + path(run).string(),
            "AB_PROGRAM=" AB_SOURCE_DIR "/tests/support/fake_program.sh", "AB_LAUNCHER=srun"};
  }

  // Processes of jobs on all nodes.
  bool nothing_runs() {
    return test::soon([&] { return slurm({"busy"}).output.empty(); }, 30);
  }

 private:
  int calls_ = 0;
};

}  // namespace anabranch
