// What state a run is in, by what its directory holds and what is known of its job.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <string_view>

namespace anabranch {

enum class RunPhase : uint8_t {
  kWaiting,  // nobody has begun it
  kQueued,   // submitted to SLURM, not begun
  kRunning,  // its directory is held by a job, or its job lives
  kSaved,    // to go on: told to save, a rank or its machine lost, or made longer since
  kDone,
  kFailed,  // another attempt would not cure it
  kStopped  // by a `stop` file, or by the sweep's rule
};

std::string_view word_of(RunPhase phase);

// What a run's directory does not say of its job.
struct JobOfRun {
  bool claimed = false;  // by a `sweep run` that lives, or by what it has started
  std::string queue;  // the job's state as SLURM calls it, PENDING or another; empty: no such job
  std::string id;     // of that job: "12_3"
};

struct RunState {
  static constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

  RunPhase phase = RunPhase::kWaiting;
  bool in_queue = false;  // SLURM will start it, or has
  bool by_rule = false;   // stopped so, not by hand
  std::string job;        // of the last attempt, or the one in the queue
  int64_t attempts = 0;
  int exit_code = 0;               // of the last attempt, if that has ended
  std::string why;                 // how it ended, or by which rule; a sentence
  std::string last_line;           // of a failed one's log: its error, if it says one
  std::string damage;              // what of the directory cannot be read; empty: nothing
  int64_t step = 0;                // the last that is known of
  int64_t total_steps = 0;         // 0: unknown
  double loss = kNone;             // of the last step
  double validation_loss = kNone;  // the last, its mean over sources; none that looks ahead
  double tokens_per_second = kNone;
  double seconds_left = kNone;  // of a running one

  // Whether someone works on it, or SLURM will by itself.
  [[nodiscard]] bool in_hand() const { return in_queue || phase == RunPhase::kRunning; }

  // Whether nothing more is to come of it by itself.
  [[nodiscard]] bool over() const {
    return phase == RunPhase::kDone || phase == RunPhase::kFailed || phase == RunPhase::kStopped;
  }
};

// Reads the ends of a directory's files; one that is missing or damaged shows in the state.
//
//   run          run directory, which need not be there
//   total_steps  it is to come to; 0: what its config.yaml says
RunState run_state(const std::filesystem::path& run, int64_t total_steps = 0,
                   const JobOfRun& job = {});

// The last line of a run's newest log that tells of an error, else the last; empty: there is none.
std::string last_log_line(const std::filesystem::path& run);

// Ends a run by the sweep's rule: writes the reason to RUN/stopped.json, then makes RUN/stop.
// Throws Error (I/O).
void stop_by_rule(const std::filesystem::path& run, const std::string& why);

}  // namespace anabranch
