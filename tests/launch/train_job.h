// Training jobs of the built program, under mpirun as a user starts them.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json_fwd.hpp>

#include "tests/support/process.h"
#include "tests/support/temp_dir.h"

namespace anabranch {

// A data set made by the program itself, and jobs that train on it.
class TrainJobs : public testing::Test {
 protected:
  void SetUp() override;

  // Starts `anabranch train` on run directory `run` (a name in a folder of this test alone).
  //
  //   ranks      processes under mpirun; 0: without mpirun
  //   arguments  more of them, "--set=a.b=c" among others
  std::unique_ptr<test::Process> train(const std::string& run, int ranks,
                                       const std::vector<std::string>& arguments = {});

  // The same by what starts ranks on several hosts; its last word is their number.
  std::unique_ptr<test::Process> train_by(const std::vector<std::string>& launcher,
                                          const std::string& run,
                                          const std::vector<std::string>& arguments);

  // Under mpirun, one rank for each list of arguments.
  std::unique_ptr<test::Process> train_unlike(const std::string& run,
                                              const std::vector<std::vector<std::string>>& ranks);

  // The same to its end; nothing may be left behind.
  struct Ended {
    int exit_code = -1;
    std::string output;
  };

  Ended train_to_end(const std::string& run, int ranks,
                     const std::vector<std::string>& arguments = {});
  Ended finish(test::Process& job) const;

  // Environment of the jobs that are started from here on.
  void set_environment(test::Process::Environment environment) {
    environment_ = std::move(environment);
  }

  // Any other verb to its end.
  Ended program(const std::vector<std::string>& arguments);

  // The whole of a run's small file; empty if there is none.
  [[nodiscard]] std::string text_of(const std::string& name) const;

  // Waits until the run has done some steps.
  [[nodiscard]] bool has_come_to(const std::string& run, int64_t step) const;

  // The objects of metrics.jsonl, as far as whole lines are written.
  void for_each_line(const std::string& run,
                     const std::function<void(const nlohmann::json&)>& f) const;

  // The losses of metrics.jsonl by step, those of a step that was done twice too, in order.
  [[nodiscard]] std::vector<double> losses(const std::string& run) const;

  // The last loss of every step in metrics.jsonl.
  [[nodiscard]] std::map<int64_t, double> losses_by_step(const std::string& run) const;

  // The step at which a rank says that it stopped; -1 if it does not say so once.
  [[nodiscard]] int64_t stopped_at(const std::string& run, int rank) const;

  [[nodiscard]] std::filesystem::path path(const std::string& name) const { return dir_ / name; }

  [[nodiscard]] std::filesystem::path data() const { return dir_ / "data"; }

  // Whole runs are of this many steps unless the test says otherwise.
  static constexpr int64_t kSteps = 30;
  // For runs that somebody stops.
  static constexpr const char* kEndless = "--set=train.steps=1000000";
  // With a learning rate that does not depend on the number of steps two runs of different lengths
  // begin alike.
  static constexpr const char* kLevel = "--set=optim.min_lr_ratio=1";

 private:
  [[nodiscard]] std::vector<std::string> command(const std::string& run,
                                                 const std::vector<std::string>& arguments) const;
  std::unique_ptr<test::Process> start(const std::vector<std::string>& command);

  test::TempDir dir_;
  test::Process::Environment environment_;
  int started_ = 0;
};

}  // namespace anabranch
