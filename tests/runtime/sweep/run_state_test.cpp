// The state of runs, by directories made as the launch scripts and runs leave them.
#include "runtime/sweep/run_state.h"

#include <chrono>
#include <cmath>
#include <fstream>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/base/host_name.h"
#include "monitoring/json_lines.h"
#include "runtime/file_lock.h"
#include "runtime/metrics_sink.h"
#include "tests/support/temp_dir.h"

namespace anabranch {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr int64_t kTotal = 40;

class RunStateTest : public testing::Test {
 protected:
  RunStateTest() : run_(dir_ / "run") {}

  void begin(int64_t step, const std::string& job = "7") const {
    add(join(R"({"event":"begin","job":")", job, R"(","attempt":1,"step":)", step, "}\n"));
  }

  void end(int code, const std::string& next, int64_t step, const std::string& told = "",
           const std::string& job = "7") const {
    add(join(R"({"event":"end","job":")", job, R"(","attempt":1,"code":)", code, R"(,"step":)",
             step, R"(,"next":")", next, R"(","told":")", told, R"(","why":"because"})", "\n"));
  }

  // A line of attempts.jsonl.
  void add(const std::string& text) const { write("attempts.jsonl", text); }

  void write(const std::string& name, const std::string& text) const {
    fs::create_directories((run_ / name).parent_path());
    std::ofstream(run_ / name, std::ios::app) << text;
  }

  void checkpoint(int64_t step) const {
    std::string number = std::to_string(step);
    number.insert(0, 8 - number.size(), '0');
    fs::create_directories(run_ / "checkpoints" / ("step-" + number));
  }

  void metrics(int64_t steps) const {
    fs::create_directories(run_);
    Metrics metrics({}, {"a", "b"}, {});
    JsonLines lines((run_ / "metrics.jsonl").string(), [](const std::string&) {});
    MetricsSink sink(metrics, lines);
    for (int64_t s = 1; s <= steps; ++s) {
      StepReport report;
      report.step = s;
      report.logged = true;
      report.loss = 5 - 0.01 * static_cast<double>(s);
      report.seconds = 0.5;
      report.tokens_per_second = 100;
      sink.step(report);
      if (s % 10 != 0) continue;
      for (const auto& [source, tokens] : {std::pair{"a", 300}, {"b", 100}}) {
        EvalReport eval;
        eval.step = s;
        eval.source = source;
        eval.loss = source == std::string("a") ? 4 : 2;
        eval.tokens = tokens;
        sink.eval(eval);
      }
    }
  }

  [[nodiscard]] RunState state(const JobOfRun& job = {}) const {
    return run_state(run_, kTotal, job);
  }

  [[nodiscard]] RunPhase phase(const JobOfRun& job = {}) const { return state(job).phase; }

  const test::TempDir dir_;
  const fs::path run_;
};

TEST_F(RunStateTest, WaitsUntilSomebodyBegins) {
  EXPECT_EQ(phase(), RunPhase::kWaiting);
  fs::create_directories(run_);
  EXPECT_EQ(phase(), RunPhase::kWaiting);
  EXPECT_EQ(phase({false, "PENDING", "12_3"}), RunPhase::kQueued);
  EXPECT_TRUE(state({false, "PENDING", "12_3"}).in_hand());
  EXPECT_EQ(state({false, "PENDING", "12_3"}).job, "12_3");
  EXPECT_EQ(phase({false, "?", "12_3"}), RunPhase::kQueued);  // who knows
  EXPECT_EQ(phase({true, "", ""}), RunPhase::kRunning);
  EXPECT_EQ(phase({false, "RUNNING", "12_3"}), RunPhase::kRunning);
}

TEST_F(RunStateTest, RunsWhileItsDirectoryIsHeld) {
  begin(0);
  end(75, "again", 10);
  EXPECT_EQ(phase(), RunPhase::kSaved);
  {
    const auto lock = FileLock::take(run_ / "lock");
    ASSERT_TRUE(lock);
    EXPECT_EQ(phase(), RunPhase::kRunning);
    EXPECT_FALSE(FileLock::take(run_ / "lock", 0));
  }
  EXPECT_EQ(phase(), RunPhase::kSaved);
}

TEST_F(RunStateTest, AnAttemptOfThisMachineLivesAsLongAsItsProcess) {
  begin(0, join("local-", host_name(), "-", getpid()));
  EXPECT_EQ(phase(), RunPhase::kRunning);
  begin(0, join("local-", host_name(), "-", 1 << 30));
  EXPECT_EQ(phase(), RunPhase::kSaved);
  EXPECT_THAT(state().why, HasSubstr("cut off"));
  EXPECT_EQ(state().attempts, 2);
}

TEST_F(RunStateTest, EachEndHasItsState) {
  struct Case {
    int code;
    const char* next;
    const char* told;
    RunPhase phase;
  };

  for (const Case& c : {Case{0, "done", "", RunPhase::kDone},
                        {75, "again", "USR1", RunPhase::kSaved},
                        {69, "again", "", RunPhase::kSaved},
                        {137, "again", "", RunPhase::kSaved},
                        {75, "stop", "INT", RunPhase::kSaved},
                        {75, "stop", "TERM", RunPhase::kSaved},
                        {143, "stop", "INT", RunPhase::kSaved},
                        {69, "stop", "", RunPhase::kFailed},  // no new step, again and again
                        {75, "stop", "USR1", RunPhase::kFailed},
                        {65, "stop", "", RunPhase::kFailed},
                        {70, "stop", "", RunPhase::kFailed},
                        {74, "stop", "", RunPhase::kFailed},
                        {78, "stop", "INT", RunPhase::kFailed},
                        {130, "stop", "", RunPhase::kStopped}}) {
    fs::remove_all(run_);
    begin(0);
    end(c.code, c.next, kTotal, c.told);
    EXPECT_EQ(phase(), c.phase) << c.code << " " << c.next << " " << c.told;
    EXPECT_EQ(state().exit_code, c.code);
    EXPECT_EQ(state().attempts, 1);
  }
}

TEST_F(RunStateTest, AJobThatWasRefusedIsNotTheRunsEnd) {
  begin(0, "7");
  begin(0, "8");
  end(74, "stop", 0, "", "8");
  EXPECT_EQ(phase(), RunPhase::kSaved);  // that of job 7, cut off
  EXPECT_EQ(state().job, "7");
}

TEST_F(RunStateTest, ALongerRunIsNotDoneAnyMore) {
  begin(0);
  end(0, "done", kTotal);
  EXPECT_EQ(run_state(run_, kTotal).phase, RunPhase::kDone);
  const RunState longer = run_state(run_, 2 * kTotal);
  EXPECT_EQ(longer.phase, RunPhase::kSaved);
  EXPECT_THAT(longer.why, HasSubstr("made longer"));
}

TEST_F(RunStateTest, TrainedByHandItIsDoneWithItsLastCheckpoint) {
  checkpoint(20);
  EXPECT_EQ(phase(), RunPhase::kSaved);
  EXPECT_EQ(state().step, 20);
  checkpoint(kTotal);
  EXPECT_EQ(phase(), RunPhase::kDone);
  begin(kTotal);  // and its launcher was killed before it could say so
  EXPECT_EQ(phase(), RunPhase::kDone);
}

TEST_F(RunStateTest, HasTheLastFigures) {
  metrics(25);
  const auto lock = FileLock::take(run_ / "lock");
  const RunState now = state();
  EXPECT_EQ(now.step, 25);
  EXPECT_EQ(now.total_steps, kTotal);
  EXPECT_DOUBLE_EQ(now.loss, 4.75);
  EXPECT_DOUBLE_EQ(now.validation_loss, 3.5);  // by tokens
  EXPECT_DOUBLE_EQ(now.tokens_per_second, 100);
  EXPECT_DOUBLE_EQ(now.seconds_left, 7.5);
  EXPECT_EQ(now.damage, "");
}

TEST_F(RunStateTest, FindsAnEvaluationFarBackUnlessItWasDoneAgain) {
  metrics(10);
  std::string first;
  {
    std::ifstream in(run_ / "metrics.jsonl");
    std::getline(in, first);
  }
  const auto step = [&](int64_t number) {
    const std::string key = "\"step\":1,";
    std::string line = first;
    line.replace(line.find(key), key.size(), join("\"step\":", number, ","));
    write("metrics.jsonl", line + "\n");
  };
  for (int64_t s = 11; s <= 300; ++s) step(s);
  EXPECT_EQ(state().step, 300);
  EXPECT_DOUBLE_EQ(state().validation_loss, 3.5);
  step(5);  // all ranks were lost
  EXPECT_EQ(state().step, 5);
  EXPECT_TRUE(std::isnan(state().validation_loss));
}

TEST_F(RunStateTest, DamageShowsAndEndsNothing) {
  begin(0);
  add("{\"event\":\"end\",\"jo\nnonsense\n");
  add("{\"event\":\"begin\"");  // being written
  write("metrics.jsonl", "{\"type\": \"step\", \"step\": \"x\"}\n\xff\xfe\n");
  write("stopped.json", "{");
  const RunState broken = state();
  EXPECT_EQ(broken.phase, RunPhase::kStopped);
  EXPECT_THAT(broken.damage, HasSubstr("attempts.jsonl has 2 lines"));
  EXPECT_THAT(broken.damage, HasSubstr("metrics.jsonl has 2 lines"));
  EXPECT_THAT(broken.damage, HasSubstr("stopped.json is damaged"));
  write("config.yaml", "model: [");
  EXPECT_THAT(run_state(run_).damage, HasSubstr("config.yaml cannot be read"));
  fs::remove_all(run_);
  std::ofstream(run_) << "a file where the directory should be";
  EXPECT_EQ(phase(), RunPhase::kWaiting);
}

TEST_F(RunStateTest, AFailedRunHasTheErrorOfItsLog) {
  begin(0);
  end(65, "stop", 0);
  write("log/job-1.out", "anabranch: error: an old one\n");
  fs::last_write_time(run_ / "log/job-1.out",
                      fs::file_time_type::clock::now() - std::chrono::hours(1));
  write("log/job-2.out",
        "launch: attempt 1 of job 2\nanabranch: error: d: no such file\n-----\nmpirun detected\n"
        "slurmstepd-n1: error: *** STEP 5.1 ON n1 CANCELLED ***\n"
        "launch: stop: bad data (exit code 65, step 0)\n");
  EXPECT_EQ(state().last_line, "anabranch: error: d: no such file");
  write("log/job-2.out", "launch: attempt 2 of job 2\nnode failure\nlaunch: again\n");
  EXPECT_EQ(state().last_line, "node failure");
}

TEST_F(RunStateTest, TheRuleStopsForGood) {
  begin(0);
  end(130, "stop", 10);
  EXPECT_FALSE(state().by_rule);
  stop_by_rule(run_, "others are better");
  EXPECT_TRUE(fs::exists(run_ / "stop"));
  EXPECT_TRUE(state().by_rule);
  EXPECT_EQ(state().why, "others are better");
  fs::remove_all(run_);
  stop_by_rule(run_, "others are better");  // one that has not begun
  EXPECT_EQ(phase(), RunPhase::kStopped);
}

}  // namespace
}  // namespace anabranch
