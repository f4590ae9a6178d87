// What the launch scripts make of exit codes and signals: launch/local.sh, without MPI, with a
// program that only pretends (tests/support/fake_program.sh).
#include <csignal>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "tests/support/process.h"
#include "tests/support/temp_dir.h"

namespace anabranch {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

class Lifecycle : public testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(run());
    fs::create_symlink(AB_SOURCE_DIR "/tests/support/fake_mpirun.sh", dir_ / "mpirun");
  }

  // Starts local.sh with a program that behaves as `script` says; see fake_program.sh.
  std::unique_ptr<test::Process> start(const std::string& script) {
    fs::remove_all(run());
    fs::create_directories(run());
    std::ofstream(run() / "script") << script;
    return start_again();
  }

  std::unique_ptr<test::Process> start_again() {
    const std::vector<std::string> command = {AB_SOURCE_DIR "/launch/local.sh", "run.yaml",
                                              "--set=train.steps=9"};
    return std::make_unique<test::Process>(
        command, dir_ / "out.txt",
        test::Process::Environment{{"PATH", join(dir_.path().string(), ":", getenv("PATH"))},
                                   {"AB_PROGRAM", AB_SOURCE_DIR "/tests/support/fake_program.sh"},
                                   {"AB_SITE", "/nowhere"},
                                   {"FAKE_RUN", run()}});
  }

  int end_of(const std::string& script) {
    const auto job = start(script);
    const int code = job->wait();
    EXPECT_EQ(job->left_behind(), 0U) << job->output();
    return code;
  }

  [[nodiscard]] fs::path run() const { return dir_ / "run"; }

  // The lines of attempts.jsonl of one event.
  [[nodiscard]] std::vector<nlohmann::json> attempts(const std::string& event) const {
    std::vector<nlohmann::json> all;
    std::ifstream in(run() / "attempts.jsonl");
    for (std::string line; std::getline(in, line);) {
      all.push_back(nlohmann::json::parse(line));
      if (all.back().at("event") != event) all.pop_back();
    }
    return all;
  }

  [[nodiscard]] std::vector<int> codes() const {
    std::vector<int> all;
    for (const auto& end : attempts("end")) all.push_back(end.at("code"));
    return all;
  }

  [[nodiscard]] std::string why() const { return attempts("end").back().at("why"); }

  test::TempDir dir_;
};

TEST_F(Lifecycle, GoesOnAsLongAsThereAreNewSteps) {
  EXPECT_EQ(end_of("75 10\n69 20\n137 30\n1 40\n75 50\n0 60\n"), 0);
  EXPECT_THAT(codes(), ElementsAre(75, 69, 137, 1, 75, 0));
  const auto begins = attempts("begin");
  for (size_t i = 0; i < begins.size(); ++i) {
    EXPECT_EQ(begins[i].at("step"), 10 * i);
    EXPECT_EQ(begins[i].at("attempt"), i + 1);
    EXPECT_EQ(begins[i].at("job"), begins[0].at("job"));
  }
  EXPECT_EQ(attempts("end").back().at("next"), "done");
}

TEST_F(Lifecycle, WhatAnotherAttemptWouldNotCureIsNotTriedAgain) {
  for (const int code : {64, 65, 70, 74, 78, 130}) {
    EXPECT_EQ(end_of(join(code, " 10\n0 20\n")), code);
    EXPECT_THAT(codes(), ElementsAre(code));
    EXPECT_EQ(attempts("end").back().at("next"), "stop");
  }
}

TEST_F(Lifecycle, StopsWhenTwoMoreAttemptsMakeNoNewStep) {
  EXPECT_EQ(end_of("75 10\n69\n75\n137\n0 20\n"), 137);
  EXPECT_THAT(codes(), ElementsAre(75, 69, 75, 137));
  EXPECT_THAT(why(), HasSubstr("no new step in 3 attempts in a row, at step 10"));
  // One new step, and it counts from there.
  EXPECT_EQ(end_of("69\n69\n69 10\n69\n69\n69 20\n0\n"), 0);
}

TEST_F(Lifecycle, AttemptsThatNobodyLivedToJudgeCountToo) {
  std::ofstream(run() / "script") << "wait 5\n";
  auto job = start_again();
  ASSERT_TRUE(test::soon([&] { return fs::exists(run() / "waiting"); })) << job->output();
  const std::string name = attempts("begin").back().at("job");
  job.reset();  // killed with all it has started
  const std::string line = join(R"({"event":"begin","job":")", name, R"(","attempt":1,"step":)");
  EXPECT_THAT(attempts("end"), testing::IsEmpty());

  // As train.sbatch, whose job keeps its name: the fourth is not begun.
  const auto idle = [&](const std::string& lines) {
    std::ofstream(run() / "attempts.jsonl") << lines;
    test::Process shell(
        {"bash", "-c",
         join(". ", AB_SOURCE_DIR, "/launch/lifecycle.sh; run=", run().string(), " job=", name,
              " launch=(env) program=(true) requeues=2; attempt x; ", "exit $code")},
        dir_ / "shell.txt");
    return shell.wait();
  };
  EXPECT_EQ(idle(line + "0}\n" + line + "0}\n"), 0);
  EXPECT_EQ(idle(line + "0}\n" + line + "0}\n" + line + "0}\n"), 69);
  EXPECT_THAT(why(), HasSubstr("no new step in 3 attempts"));
  EXPECT_EQ(idle(line + "0}\n" + line + "4}\n" + line + "0}\n"), 0);
}

TEST_F(Lifecycle, SignalsAskForASave) {
  for (const auto& [signal, code] : {std::pair{SIGINT, 130}, {SIGTERM, 75}}) {
    const auto job = start("wait 5\n0 9\n");
    ASSERT_TRUE(test::soon([&] { return fs::exists(run() / "waiting"); })) << job->output();
    kill(job->id(), signal);
    EXPECT_EQ(job->wait(), code) << job->output();
    EXPECT_EQ(job->left_behind(), 0U);
    EXPECT_THAT(codes(), ElementsAre(75));
    EXPECT_EQ(attempts("end").back().at("step"), 5);
    EXPECT_EQ(attempts("end").back().at("next"), "stop");
  }
  const auto job = start("wait 5\n0 9\n");
  ASSERT_TRUE(test::soon([&] { return fs::exists(run() / "waiting"); })) << job->output();
  kill(job->id(), SIGUSR1);
  EXPECT_EQ(job->wait(), 0) << job->output();
  EXPECT_THAT(codes(), ElementsAre(75, 0));
}

TEST_F(Lifecycle, ABrokenMachineIsNotTrainedOn) {
  fs::create_directories(run());
  std::ofstream(run() / "doctor") << "74";
  std::ofstream(run() / "script") << "0 9\n";
  const auto job = start_again();
  EXPECT_EQ(job->wait(), 74) << job->output();
  std::ifstream in(run() / "calls");
  const std::string calls(std::istreambuf_iterator<char>(in), {});
  EXPECT_THAT(calls, HasSubstr("doctor run.yaml --set=train.steps=9\n"));
  EXPECT_THAT(calls, Not(HasSubstr("train run.yaml")));
}

}  // namespace
}  // namespace anabranch
