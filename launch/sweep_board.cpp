#include "launch/sweep_board.h"

#include <system_error>
#include <utility>

#include "core/base/error.h"
#include "runtime/sweep/stop_early.h"
#include "runtime/sweep/sweep_file.h"

namespace anabranch {

namespace fs = std::filesystem;

SweepBoard::SweepBoard(SweepDirectory directory)
    : directory_(std::move(directory)), record_(read_record(directory_.path().string())) {
  states_.resize(record_.runs.size());
  seen_.resize(record_.runs.size());
}

SweepBoard::Seen SweepBoard::glance(const std::string& id, const JobOfRun& job) const {
  const auto size = [&](const char* name) -> uintmax_t {
    std::error_code missing;
    const uintmax_t bytes = fs::file_size(directory_.run(id) / name, missing);
    return missing ? 0 : bytes;
  };
  return {size("attempts.jsonl"), size("metrics.jsonl"), job.claimed, job.queue};
}

void SweepBoard::look(bool decides) {
  if (decides || std::chrono::steady_clock::now() >= ask_again_) {
    constexpr std::chrono::seconds kUsual{5}, kTroubled{60};
    queue_ = ask_slurm(directory_);
    ask_again_ = std::chrono::steady_clock::now() + (queue_.trouble.empty() ? kUsual : kTroubled);
  }
  for (size_t r = 0; r < states_.size(); ++r) {
    const SweepRun& run = record_.runs[r];
    JobOfRun& job = queue_.jobs[run.id];
    job.claimed = FileLock::is_held(directory_.claim(run.id));
    Seen seen = glance(run.id, job);
    if (states_[r].phase == RunPhase::kDone && seen == seen_[r]) continue;
    states_[r] = run_state(directory_.run(run.id), record_.points[run.point].steps, job);
    seen_[r] = std::move(seen);
  }
}

bool SweepBoard::may_start(size_t run, bool retry) const {
  const RunState& state = states_[run];
  if (state.in_hand()) return false;
  if (!state.over()) return true;
  return retry && (state.phase == RunPhase::kFailed ||
                   (state.phase == RunPhase::kStopped && !state.by_rule));
}

std::vector<std::string> SweepBoard::apply_rule() {
  if (!record_.stop_early) return {};
  std::vector<RunSoFar> runs(states_.size());
  for (size_t r = 0; r < states_.size(); ++r) {
    const RunState& state = states_[r];
    runs[r].over = state.over();
    runs[r].stopped = state.by_rule;
    const std::string file = (directory_.run(record_.runs[r].id) / "metrics.jsonl").string();
    if (!state.over()) ended_.erase(r);  // begun again
    if (const auto known = ended_.find(r); known != ended_.end()) {
      runs[r].series = known->second;
    } else if (fs::is_regular_file(file)) {
      runs[r].series = read_series(file, state.total_steps);
      if (state.over()) ended_[r] = runs[r].series;
    }
  }
  std::vector<std::string> ended;
  for (const StopVerdict& verdict : runs_to_stop(*record_.stop_early, record_, runs)) {
    const std::string& id = record_.runs[verdict.run].id;
    if (fs::exists(directory_.run(id) / kStoppedEarly)) continue;  // it has been told
    stop_by_rule(directory_.run(id), verdict.why);
    ended.push_back(id);
  }
  return ended;
}

SweepDirectory sweep_directory_of(const std::string& file_or_folder, SweepScale scale) {
  if (fs::is_directory(file_or_folder)) {
    if (scale != SweepScale::kTiny) return SweepDirectory(file_or_folder);
    throw usage_error("--scale tiny belongs to a sweep's file; ", file_or_folder, " is a folder");
  }
  if (!fs::exists(file_or_folder)) {
    throw data_error(file_or_folder, ": no such file; expected a sweep's file or its directory");
  }
  const std::string name = fs::path(file_or_folder).stem().string();
  return SweepDirectory::of(name + (scale == SweepScale::kTiny ? "-tiny" : ""));
}

}  // namespace anabranch
