#include "runtime/sweep/run_state.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <fstream>
#include <map>
#include <optional>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/host_name.h"
#include "core/base/quote.h"
#include "data/hdf5/raw_file.h"
#include "runtime/checkpoint/directory.h"
#include "runtime/config/config.h"
#include "runtime/config/number.h"
#include "runtime/config/validate.h"
#include "runtime/file_lock.h"
#include "runtime/metrics_reader.h"
#include "runtime/sweep/file_tail.h"
#include "runtime/sweep/stop_early.h"

namespace anabranch {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr int kRefused = 74;  // by the disk, or by a job that holds the directory

// The last attempt, as RUN/attempts.jsonl has it.
struct LastAttempt {
  int64_t number = 0;  // of all that have begun, whatever their job
  std::string job;
  bool ended = false;
  int code = 0;
  int64_t step = 0;
  std::string next, why, told;
};

void note(std::string& damage, const std::string& what) {
  damage += (damage.empty() ? "" : "; ") + what;
}

// Takes what a line says into the last attempt of each job, and returns whose it is; throws
// Json::exception if it is none that the launch scripts write.
std::string take_line(const std::string& line, std::map<std::string, LastAttempt>& jobs) {
  const Json entry = Json::parse(line);
  const bool begins = entry.at("event") == "begin";
  const std::string job = entry.at("job");
  LastAttempt attempt;
  attempt.job = job;
  attempt.ended = !begins;
  attempt.step = entry.at("step");
  if (!begins) {
    attempt.code = entry.at("code");
    attempt.next = entry.at("next");
    attempt.why = entry.at("why");
    attempt.told = entry.value("told", "");
  }
  jobs[job] = attempt;
  if (attempt.code != kRefused) return job;
  // Refused as another job holds the directory, perhaps: that one's attempt is what counts.
  for (const auto& [other, last] : jobs) {
    if (!last.ended) return other;
  }
  return job;
}

LastAttempt read_attempts(const fs::path& run, std::string& damage) {
  std::map<std::string, LastAttempt> jobs;
  std::string newest;
  int64_t odd = 0, begun = 0;
  std::ifstream in(run / "attempts.jsonl", std::ios::binary);
  for (std::string line; std::getline(in, line) && !in.eof();) {
    try {
      newest = take_line(line, jobs);
      begun += line.find("\"begin\"") != std::string::npos ? 1 : 0;
    } catch (const Json::exception&) {
      ++odd;
    }
  }
  if (odd > 0) {
    note(damage,
         join("attempts.jsonl has ", counted(odd, "line"), " that no launch script writes"));
  }
  LastAttempt last = jobs[newest];
  last.number = begun;
  return last;
}

// The last figures of metrics.jsonl.
class LastFigures final : public ReportSink {
 public:
  void step(const StepReport& r) override {
    if (r.step <= step_) forget_from(r.step);
    step_ = r.step;
    loss_ = r.loss;
    tokens_per_second_ = r.tokens_per_second;
    seconds_.push_back(r.seconds);
  }

  void eval(const EvalReport& r) override {
    if (!r.looks_ahead) evals_[r.source] = r;
  }

  void save(const SaveReport&) override {}

  void event(const std::string&, const std::string&) override {}

  [[nodiscard]] bool has_all() const { return !seconds_.empty() && !evals_.empty(); }

  void tell(RunState& state) const {
    if (seconds_.empty()) return;
    state.step = step_;
    state.loss = loss_;
    state.tokens_per_second = tokens_per_second_;
    double tokens = 0, sum = 0;
    for (const auto& [source, eval] : evals_) {
      tokens += static_cast<double>(eval.tokens);
      sum += static_cast<double>(eval.tokens) * eval.loss;
    }
    if (tokens > 0) state.validation_loss = sum / tokens;
    if (state.phase != RunPhase::kRunning || state.total_steps < step_) return;
    constexpr std::ptrdiff_t kRecent = 20;
    const auto first = seconds_.end() - std::min(kRecent, std::ssize(seconds_));
    double mean = 0;
    for (auto s = first; s != seconds_.end(); ++s) mean += *s;
    mean /= static_cast<double>(seconds_.end() - first);
    state.seconds_left = mean * static_cast<double>(state.total_steps - step_);
  }

 private:
  // What was done again after a loss.
  void forget_from(int64_t step) {
    std::erase_if(evals_, [step](const auto& each) { return each.second.step >= step; });
  }

  int64_t step_ = 0;
  double loss_ = RunState::kNone, tokens_per_second_ = RunState::kNone;
  std::vector<double> seconds_;
  std::map<std::string, EvalReport> evals_;
};

// Reads more and more of the file's end, until it has a step and an evaluation.
void read_figures(const fs::path& run, RunState& state) {
  constexpr int64_t kFirst = 16 << 10, kMost = 1 << 20;
  const std::string path = (run / "metrics.jsonl").string();
  std::error_code ignored;
  for (int64_t bytes = kFirst;; bytes *= 4) {
    LastFigures figures;
    int64_t odd = 0;
    for (const std::string& line : tail_lines(path, bytes)) {
      odd += read_report(line, 0, figures) ? 0 : 1;
    }
    const auto size = fs::file_size(path, ignored);
    const bool all = ignored || size <= static_cast<uintmax_t>(bytes);
    if (!all && !figures.has_all() && bytes < kMost) continue;
    figures.tell(state);
    if (odd > 0) {
      note(state.damage, join("metrics.jsonl has ", counted(odd, "line"), " that no run writes"));
    }
    return;
  }
}

// The steps that the run's own configuration plans; 0 if it has none, or does not tell.
int64_t planned_by_config(const fs::path& run, std::string& damage) {
  const fs::path file = run / "config.yaml";
  if (!fs::exists(file)) return 0;
  try {
    return planned_steps(file.string());
  } catch (const Error& error) {
    note(damage, join("config.yaml cannot be read: ", excerpt(error.what(), 200)));
    return 0;
  }
}

int64_t newest_checkpoint(const fs::path& run) {
  try {
    const std::vector<int64_t> steps = CheckpointDirectory(run / "checkpoints").steps();
    return steps.empty() ? 0 : steps.front();
  } catch (const std::exception&) {  // the folder went away meanwhile, or cannot be read
    return 0;
  }
}

// Whether the job of an attempt on this machine lives: local.sh calls it after its process.
bool lives_here(const std::string& job) {
  const std::string ours = "local-" + host_name() + "-";
  int64_t process = 0;
  return job.starts_with(ours) && parse_number(job.substr(ours.size()), process) && process > 1 &&
         (kill(static_cast<pid_t>(process), 0) == 0 || errno == EPERM);
}

// Why the sweep's rule has ended the run; nothing if it has not.
std::optional<std::string> rule_of(const fs::path& run, std::string& damage) {
  std::ifstream in(run / kStoppedEarly);
  if (!in) return {};
  const Json document = Json::parse(in, nullptr, false);
  if (document.is_object() && document.contains("why") && document["why"].is_string()) {
    return document["why"].get<std::string>();
  }
  note(damage, "stopped.json is damaged");
  return "ended by the sweep's rule";
}

bool is_done(const LastAttempt& last, int64_t total, int64_t checkpoint) {
  if (last.ended && last.next == "done") return last.step >= total || checkpoint >= total;
  return !last.ended && total > 0 && checkpoint >= total;  // nobody lived to say so
}

// Of a run on which nobody works.
RunPhase phase_at_rest(const LastAttempt& last, const RunState& state, int64_t checkpoint) {
  if (is_done(last, state.total_steps, checkpoint)) return RunPhase::kDone;
  if (!last.ended) {
    const bool begun = last.number > 0 || checkpoint > 0 || state.step > 0;
    return begun ? RunPhase::kSaved : RunPhase::kWaiting;
  }
  if (last.next == "done" || last.next == "again") return RunPhase::kSaved;
  if (last.code == 130) return RunPhase::kStopped;
  const bool told = last.told == "INT" || last.told == "TERM";
  const bool curable =
      last.code != 64 && last.code != 65 && last.code != 70 && last.code != 74 && last.code != 78;
  return told && curable ? RunPhase::kSaved : RunPhase::kFailed;
}

std::string why_at_rest(const LastAttempt& last, const RunState& state) {
  if (!last.ended) return last.number > 0 ? "its last attempt was cut off" : "";
  if (last.next == "done" && state.phase == RunPhase::kSaved) {
    return join("complete at step ", last.step, ", and made longer since");
  }
  return last.why;
}

}  // namespace

std::string_view word_of(RunPhase phase) {
  switch (phase) {
    case RunPhase::kWaiting:
      return "waiting";
    case RunPhase::kQueued:
      return "queued";
    case RunPhase::kRunning:
      return "running";
    case RunPhase::kSaved:
      return "saved";
    case RunPhase::kDone:
      return "done";
    case RunPhase::kFailed:
      return "failed";
    case RunPhase::kStopped:
      return "stopped";
  }
  return "waiting";
}

RunState run_state(const fs::path& run, int64_t total_steps, const JobOfRun& job) {
  RunState state;
  const LastAttempt last = read_attempts(run, state.damage);
  state.total_steps = total_steps > 0 ? total_steps : planned_by_config(run, state.damage);
  state.attempts = last.number;
  const bool came_to_end = last.ended && last.next != "again";
  state.in_queue = !job.queue.empty() && (job.queue != "?" || !came_to_end);
  state.job = state.in_queue ? job.id : last.job;
  state.exit_code = last.ended ? last.code : 0;
  const bool pending =
      state.in_queue && (job.queue == "PENDING" || job.queue == "REQUEUED" || job.queue == "?");
  const bool is_running = FileLock::is_held(run / "lock") || job.claimed ||
                          (state.in_queue && !pending) || (!last.ended && lives_here(last.job));
  if (is_running) state.phase = RunPhase::kRunning;
  read_figures(run, state);
  if (is_running) return state;
  const int64_t checkpoint = newest_checkpoint(run);
  state.phase = phase_at_rest(last, state, checkpoint);
  state.why = why_at_rest(last, state);
  state.step = std::max(state.step, checkpoint);
  if (state.phase != RunPhase::kDone) {
    if (const auto rule = rule_of(run, state.damage)) {
      state.phase = RunPhase::kStopped;
      state.by_rule = true;
      state.why = *rule;
    } else if (pending) {
      state.phase = last.number > 0 ? RunPhase::kSaved : RunPhase::kQueued;
    }
  }
  if (state.phase == RunPhase::kFailed) state.last_line = last_log_line(run);
  return state;
}

std::string last_log_line(const fs::path& run) {
  std::error_code failure;
  fs::path newest;
  fs::file_time_type when;
  for (const auto& entry : fs::directory_iterator(run / "log", failure)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("job-") || !name.ends_with(".out")) continue;
    std::error_code gone;
    const fs::file_time_type written = entry.last_write_time(gone);
    if (gone || (!newest.empty() && written <= when)) continue;
    newest = entry.path();
    when = written;
  }
  if (newest.empty()) newest = run / "log" / "rank-0000.log";
  constexpr int64_t kBytes = 64 << 10;
  constexpr size_t kLongest = 400;
  std::string last, error;
  for (const std::string& line : tail_lines(newest.string(), kBytes)) {
    if (line.starts_with("launch: attempt ")) error.clear();
    if (line.find("anabranch: error: ") != std::string::npos) error = line;
    // Those of the launchers say only that something has ended.
    const bool is_theirs = line.starts_with("launch: ") || line.starts_with("slurmstepd") ||
                           line.starts_with("srun: ") || line.starts_with("mpirun ");
    if (!is_theirs && line.find_first_not_of(" -\r") != std::string::npos) last = line;
  }
  return excerpt(error.empty() ? last : error, kLongest);
}

void stop_by_rule(const fs::path& run, const std::string& why) {
  std::error_code failure;
  fs::create_directories(run, failure);
  if (failure) throw io_error("cannot make ", run.string(), ": ", failure.message());
  write_atomically((run / kStoppedEarly).string(), Json({{"why", why}}).dump() + "\n");
  write_atomically((run / "stop").string(), "");
}

}  // namespace anabranch
