// `anabranch sweep run` on this machine and `sweep status`: with a program that only pretends to
// train (tests/support/fake_program.sh), and once with runs that really do.
#include <csignal>
#include <filesystem>
#include <fstream>
#include <set>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "tests/launch/train_job.h"
#include "tests/support/checkpoints.h"

namespace anabranch {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// A sweep of the runs g-n1-s1, g-n2-s1, ... in a folder of its own.
class SweepRun : public testing::Test {
 protected:
  void SetUp() override {
    write("base.yaml",
          "data: {path: d}\nmodel: {type: gpt2, layers: 2, width: 64, heads: 2, context: 32}\n"
          "train: {steps: 9, batch_tokens: 1024}\n");
    fs::create_symlink(AB_SOURCE_DIR "/tests/support/fake_mpirun.sh", dir_ / "mpirun");
    sweep(3);
  }

  void sweep(int points) const {
    std::string list;
    for (int n = 1; n <= points; ++n) list += join(n > 1 ? ", " : "", n);
    write("s.yaml",
          "base: base.yaml\nvocabulary: 300\nseeds: [1]\nfamily: g\nname: \"g-n{n}\"\n"
          "grid: {n: [" +
              list + "]}\n");
  }

  // What `train` of a run does, a line for each: see fake_program.sh.
  void script(int n, const std::string& text) const {
    fs::create_directories(run(n));
    write("runs/s/" + id(n) + "/script", text);
  }

  void write(const std::string& name, const std::string& text) const {
    std::ofstream(dir_ / name) << text;
  }

  static std::string id(int n) { return join("g-n", n, "-s1"); }

  [[nodiscard]] fs::path run(int n) const { return dir_ / ("runs/s/" + id(n)); }

  // Starts `anabranch ARGUMENTS` in the folder.
  std::unique_ptr<test::Process> start(const std::string& arguments) {
    const std::string command =
        join("cd ", dir_.path().string(), " && exec ", AB_PROGRAM, " ", arguments);
    return std::make_unique<test::Process>(
        std::vector<std::string>{"bash", "-c", command}, dir_ / join("out-", ++started_, ".txt"),
        test::Process::Environment{{"PATH", join(dir_.path().string(), ":", getenv("PATH"))},
                                   {"AB_PROGRAM", AB_SOURCE_DIR "/tests/support/fake_program.sh"},
                                   {"AB_SITE", "/nowhere"},
                                   {"FAKE_RUN", ""}});
  }

  // The same to its end, with what it has printed.
  std::pair<int, std::string> ends(const std::string& arguments) {
    const auto process = start(arguments);
    const int code = process->wait();
    EXPECT_EQ(process->left_behind(), 0U) << process->output();
    return {code, process->output()};
  }

  [[nodiscard]] nlohmann::json status() {
    const auto [code, text] = ends("sweep status s.yaml --json");
    EXPECT_EQ(code, 0) << text;
    return nlohmann::json::parse(text);
  }

  [[nodiscard]] std::vector<std::string> states() {
    std::vector<std::string> all;
    const nlohmann::json document = status();
    for (const auto& entry : document.at("runs")) all.push_back(entry.at("state"));
    return all;
  }

  // How often `train` was begun.
  [[nodiscard]] int64_t begun(int n) const {
    std::ifstream in(run(n) / "attempts.jsonl");
    int64_t count = 0;
    for (std::string line; std::getline(in, line);) count += line.find("\"begin\"") != line.npos;
    return count;
  }

  [[nodiscard]] bool waits(int n) const {
    return test::soon([&] { return fs::exists(run(n) / "waiting"); });
  }

  test::TempDir dir_;
  int started_ = 0;
};

TEST_F(SweepRun, OneFailureStopsNoneAndOnlyRetryTriesItAgain) {
  script(1, "0 9\n");
  script(2, "65\n0 9\n");
  script(3, "75 4\n0 9\n");
  const auto [code, text] = ends("sweep run s.yaml --at-once 2 --every 0.1");
  EXPECT_EQ(code, 65) << text;
  EXPECT_THAT(text, HasSubstr("g-n1-s1: done"));
  EXPECT_THAT(text, HasSubstr("g-n2-s1 failed, exit code 65: bad data"));
  EXPECT_THAT(text, HasSubstr("s: 3 runs: 1 failed, 2 done"));
  EXPECT_THAT(states(), ElementsAre("done", "failed", "done"));
  EXPECT_EQ(begun(3), 2);

  const auto [again, said] = ends("sweep run s.yaml --every 0.1");
  EXPECT_EQ(again, 65) << said;
  EXPECT_EQ(begun(2), 1);
  EXPECT_EQ(ends("sweep run s.yaml --retry --every 0.1").first, 0);
  EXPECT_THAT(states(), ElementsAre("done", "done", "done"));
  EXPECT_EQ(begun(1), 1);
}

TEST_F(SweepRun, CtrlCSavesAndTheNextGoesOn) {
  for (int n = 1; n <= 3; ++n) script(n, "wait 5\n0 9\n");
  const auto first = start("sweep run s.yaml --at-once 2 --every 0.1");
  ASSERT_TRUE(waits(1) && waits(2)) << first->output();
  kill(-first->id(), SIGINT);
  EXPECT_EQ(first->wait(), 130) << first->output();
  EXPECT_EQ(first->left_behind(), 0U);
  EXPECT_THAT(states(), ElementsAre("saved", "saved", "waiting"));
  script(3, "0 9\n");
  const auto [code, text] = ends("sweep run s.yaml --at-once 3 --every 0.1");
  EXPECT_EQ(code, 0) << text;
  EXPECT_THAT(states(), ElementsAre("done", "done", "done"));
}

TEST_F(SweepRun, TwoSubmittersShareAndTheSecondOutlivesTheFirst) {
  sweep(4);
  for (int n = 1; n <= 4; ++n) script(n, "wait 5\n0 9\n");
  const auto first = start("sweep run s.yaml --every 0.1");
  ASSERT_TRUE(waits(1)) << first->output();
  const auto second = start("sweep run s.yaml --every 0.1");
  ASSERT_TRUE(waits(2)) << second->output();
  EXPECT_THAT(states(), ElementsAre("running", "running", "waiting", "waiting"));
  // Its run lives on, and stays its own.
  kill(first->id(), SIGKILL);
  EXPECT_EQ(first->wait(), 137);
  EXPECT_THAT(states(), ElementsAre("running", "running", "waiting", "waiting"));
  EXPECT_EQ(begun(3), 0);
  const auto rank = [&](int n) {
    std::ifstream in(run(n) / "waiting");
    pid_t process = 0;
    in >> process;
    return process;
  };
  for (int n = 1; n <= 4; ++n) {
    ASSERT_TRUE(waits(n)) << second->output();
    ASSERT_GT(rank(n), 0);
    kill(rank(n), SIGUSR1);  // it saves, and its local.sh goes on
    ASSERT_TRUE(test::soon([&] { return begun(n) == 2; })) << n << second->output();
  }
  EXPECT_EQ(second->wait(), 0) << second->output();
  EXPECT_THAT(states(), ElementsAre("done", "done", "done", "done"));
  for (int n = 1; n <= 4; ++n) EXPECT_EQ(begun(n), 2) << n;
}

TEST_F(SweepRun, WhatChangedIsRefused) {
  for (int n = 1; n <= 3; ++n) script(n, "0 9\n");
  ASSERT_EQ(ends("sweep run s.yaml --at-once 3 --every 0.1").first, 0);
  const auto [code, text] = ends("sweep run s.yaml --set model.width=32");
  EXPECT_EQ(code, 78);
  EXPECT_THAT(text, HasSubstr("g-n1-s1: model.width was \"64\", is \"32\""));
  script(1, "0 18\n");
  script(2, "0 18\n");
  script(3, "0 18\n");
  EXPECT_EQ(ends("sweep run s.yaml --set train.steps=18 --every 0.1").first, 0);
  EXPECT_EQ(begun(1), 2);
  EXPECT_EQ(ends("sweep run s.yaml -- --nodes=2").first, 64);
  EXPECT_EQ(ends("sweep run s.yaml --slurm -n 2").first, 64);
  EXPECT_EQ(ends("sweep status nothing.yaml").first, 65);
}

// Runs that really train, of the tiny scale; one is another's data.
class SweepTrains : public TrainJobs {};

TEST_F(SweepTrains, TinyFromFileToTable) {
  std::ofstream(path("base.yaml"))
      << "data: {path: " << data().string()
      << "}\nmodel: {preset: gpt2-85m}\ntrain: {steps: 30, batch_tokens: 1024}\n";
  std::ofstream(path("s.yaml"))
      << "base: base.yaml\nvocabulary: 300\nseeds: [1, 2]\nfamily: c\nset: {model.type: cmollm}\n"
         "grid: {model.streams: [2, 4]}\n";
  std::ofstream(path("site.env")) << "AB_PROGRAM=" << AB_PROGRAM
                                  << "\nAB_MPIRUN=(--oversubscribe)\n";
  const auto run = [&](const std::string& arguments) {
    test::Process process(
        {"bash", "-c", join("cd ", path("").string(), " && exec ", AB_PROGRAM, " ", arguments)},
        path("out.txt").string(),
        {{"AB_SITE", path("site.env").string()},
         {"OMPI_ALLOW_RUN_AS_ROOT", "1"},
         {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
         {"OMPI_MCA_mpi_yield_when_idle", "1"}});
    return finish(process);
  };
  const Ended end = run("sweep run s.yaml --scale tiny --at-once 2");
  EXPECT_EQ(end.exit_code, 0) << end.output;
  EXPECT_THAT(end.output, HasSubstr("s-tiny: 4 runs: 4 done"));
  const auto status = nlohmann::json::parse(run("sweep status s.yaml --scale tiny --json").output);
  for (const auto& entry : status.at("runs")) {
    EXPECT_EQ(entry.at("state"), "done") << entry;
    EXPECT_EQ(entry.at("step"), 2);
    EXPECT_GT(entry.at("validation_loss"), 0);
    EXPECT_EQ(entry.at("attempts"), 1);
  }
  EXPECT_THAT(run("watch runs/s-tiny --once").output, HasSubstr("c-streams2-s1  done"));
  // Longer: each goes on from where it was.
  const Ended longer = run("sweep run s.yaml --scale tiny --at-once 2 --set train.steps=4");
  EXPECT_EQ(longer.exit_code, 0) << longer.output;
  EXPECT_EQ(test::saved_steps(path("runs/s-tiny/c-streams2-s1")).front(), 4);
}

}  // namespace
}  // namespace anabranch
