// A program that runs beside the test, with every process it starts.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

namespace anabranch::test {

class Process {
 public:
  using Environment = std::map<std::string, std::string>;

  // How long any of them may take before it is killed and counts as failed.
  static constexpr double kWatchdogSeconds = 120;

  // Starts `command`, found on the path.
  //
  //   output       file for its standard output and error together
  //   environment  added to this process's
  Process(const std::vector<std::string>& command, std::string output,
          const Environment& environment = {});
  // Kills what is left.
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  [[nodiscard]] pid_t id() const { return id_; }

  // The exit code, or 128 + the signal that ended it; nothing while it runs.
  std::optional<int> ended();

  // Waits for the end. A program that is still there at the watchdog's time is killed with all it
  // started, and the test fails.
  int wait();

  // What it has written so far.
  [[nodiscard]] std::string output() const;

  // The live processes it has started, itself included while it lives: all that carry its mark in
  // their environment.
  [[nodiscard]] std::vector<pid_t> members() const;

  // The MPI rank of that number among them; 0 if it is not there (yet, or any more).
  [[nodiscard]] pid_t rank(int number) const;

  // Waits a little for the members to end after the program has; how many are left then.
  [[nodiscard]] size_t left_behind() const;

 private:
  std::string output_, mark_;
  pid_t id_ = 0;
  std::optional<int> exit_code_;
};

// Whether a condition holds before long; looks again every few milliseconds.
template <class F>
bool soon(const F& holds, double seconds = Process::kWatchdogSeconds);

// Sleeps.
void pause_for(double seconds);

template <class F>
bool soon(const F& holds, double seconds) {
  constexpr double kPoll = 0.005;
  for (double waited = 0; waited < seconds; waited += kPoll) {
    if (holds()) return true;
    pause_for(kPoll);
  }
  return holds();
}

}  // namespace anabranch::test
