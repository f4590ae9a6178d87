#include "launch/local_sweep.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <deque>
#include <iostream>
#include <map>
#include <optional>
#include <set>
#include <sys/wait.h>
#include <thread>

#include "core/base/error.h"
#include "core/base/parallel_for.h"
#include "launch/child_process.h"
#include "launch/launch_scripts.h"
#include "launch/live_screen.h"
#include "launch/sweep_board.h"
#include "launch/sweep_table.h"
#include "runtime/config/config.h"
#include "runtime/config/number.h"

namespace anabranch {

namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr size_t kRecent = 6;  // lines of what has happened, below the live table

class LocalSweep {
 public:
  LocalSweep(const SweepDirectory& directory, const LocalSweepWish& wish)
      : board_(directory), wish_(wish), script_((launch_folder() / "local.sh").string()) {
    block_signals();
    if (LiveScreen::possible()) screen_.emplace();
    board_.look();
    shown_.resize(board_.states().size(), RunPhase::kWaiting);
  }

  int run();

 private:
  struct Child {
    size_t run = 0;
    FileLock claim;
  };

  void hear(double seconds);
  void tell_children();
  void reap();
  void start_more();
  void start(size_t run, FileLock claim);
  [[nodiscard]] bool wanted(size_t run) const;
  [[nodiscard]] bool any(bool (LocalSweep::*is)(size_t) const) const;
  [[nodiscard]] bool is_others(size_t run) const;
  [[nodiscard]] bool over() const;
  void look();
  void say(const std::string& line);
  [[nodiscard]] int exit_code() const;

  SweepBoard board_;
  LocalSweepWish wish_;
  std::string script_;
  std::optional<LiveScreen> screen_;
  std::map<pid_t, Child> children_;
  std::set<size_t> started_;       // by this process, each once
  std::map<size_t, int> unbegun_;  // exit codes of those that ended before there was an attempt
  std::vector<RunPhase> shown_;    // of each run, as it was said last
  std::deque<std::string> recent_;
  int told_ = 0;          // the signal that asked for the end
  bool at_once_ = false;  // it has come again
  Clock::time_point deadline_, next_look_, next_rule_;
};

void LocalSweep::say(const std::string& line) {
  if (!screen_) {
    std::cout << line << "\n" << std::flush;
    return;
  }
  recent_.push_back(line);
  if (recent_.size() > kRecent) recent_.pop_front();
}

// local.sh passes on what it is told, and ends its ranks when it is told again.
void LocalSweep::tell_children() {
  for (const auto& [process, child] : children_) kill(process, told_ == SIGINT ? SIGINT : SIGTERM);
}

void LocalSweep::hear(double seconds) {
  for (int signal = next_signal(seconds); signal != 0; signal = next_signal(0)) {
    if (signal == SIGCHLD) continue;
    constexpr std::chrono::seconds kPatience{10};
    at_once_ = told_ != 0;
    if (at_once_) deadline_ = Clock::now() + kPatience;
    if (told_ == 0) told_ = signal;
    say(at_once_ ? "ending at once"
                 : join("told to end: ", counted(std::ssize(children_), "run"),
                        " will save and end; once more ends them at once"));
    tell_children();
  }
}

void LocalSweep::reap() {
  int status = 0;
  for (pid_t ended = 0; (ended = waitpid(-1, &status, WNOHANG)) > 0;) {
    const auto child = children_.find(ended);
    if (child == children_.end()) continue;
    const size_t run = child->second.run;
    children_.erase(child);  // and with it the claim
    next_look_ = Clock::now();
    const std::string& id = board_.record().runs[run].id;
    const RunState state = run_state(board_.directory().run(id), 0);
    if (state.phase != RunPhase::kWaiting) continue;
    unbegun_[run] = exit_code_of(status);
    say(join(id, ": failed before it began, exit code ", unbegun_[run], ": ",
             last_log_line(board_.directory().run(id))));
  }
}

bool LocalSweep::wanted(size_t run) const {
  return !started_.contains(run) && board_.may_start(run, wish_.retry);
}

// In the hands of another submitter on this machine, or of someone who trains by hand.
bool LocalSweep::is_others(size_t run) const {
  return board_.states()[run].phase == RunPhase::kRunning && !board_.states()[run].in_queue;
}

bool LocalSweep::any(bool (LocalSweep::*is)(size_t) const) const {
  for (size_t r = 0; r < board_.states().size(); ++r) {
    if ((this->*is)(r)) return true;
  }
  return false;
}

void LocalSweep::start(size_t run, FileLock claim) {
  const std::string& id = board_.record().runs[run].id;
  const std::string config = board_.directory().config(id).string();
  const fs::path log = board_.directory().run(id) / "log";
  fs::create_directories(log);
  std::vector<std::string> command = {script_, "-n", std::to_string(wish_.ranks), config};
  // Runs at a time cannot all have the one port that is the default.
  if (load_config(config).metrics.listen == MetricsConfig().listen) {
    command.insert(command.end(), {"--set", "metrics.listen=127.0.0.1:0"});
  }
  ChildSetup setup{.environment = {{"AB_PROGRAM", program_for_scripts()}},
                   .output = (log / "job-local.out").string(),
                   .lock = &claim,
                   .own_group = true};
  const int64_t cores = std::thread::hardware_concurrency();
  if (std::getenv("OMP_NUM_THREADS") == nullptr) {
    setup.environment.emplace_back(
        "OMP_NUM_THREADS",
        std::to_string(std::max<int64_t>(1, cores / (wish_.at_once * wish_.ranks))));
  }
  const pid_t process = start_child(command, setup);
  started_.insert(run);
  children_.emplace(process, Child{run, std::move(claim)});
}

// Decides under the sweep's lock, by states that were read under it.
void LocalSweep::start_more() {
  const auto room = [&] { return std::ssize(children_) < wish_.at_once; };
  if (told_ != 0 || !room() || !any(&LocalSweep::wanted)) return;
  const FileLock decisions = board_.directory().lock_decisions();
  board_.look(true);
  for (size_t r = 0; r < board_.states().size() && room(); ++r) {
    if (!wanted(r)) continue;
    std::optional<FileLock> claim = board_.directory().take_claim(board_.record().runs[r].id);
    if (claim) start(r, std::move(*claim));
  }
  next_look_ = Clock::now();
}

void LocalSweep::look() {
  const auto now = Clock::now();
  if (now < next_look_) return;
  const std::chrono::duration<double> pause(wish_.every);
  next_look_ = now + std::chrono::duration_cast<Clock::duration>(pause);
  board_.look();
  for (size_t r = 0; r < shown_.size(); ++r) {
    if (board_.states()[r].phase == shown_[r]) continue;
    shown_[r] = board_.states()[r].phase;
    say(run_line(board_, r));
  }
  if (now >= next_rule_) {
    next_rule_ = now + 5 * std::chrono::duration_cast<Clock::duration>(pause);
    for (const std::string& id : board_.apply_rule()) say(id + ": told to stop, by the rule");
  }
  if (!screen_) return;
  const size_t below = kRecent + 4, height = screen_->height();
  std::string text = sweep_table(board_, height > below + 1 ? height - below : 1);
  for (const std::string& line : recent_) text += line + "\n";
  screen_->show(text);
}

bool LocalSweep::over() const {
  if (at_once_ && Clock::now() >= deadline_) return true;
  if (!children_.empty()) return false;
  return told_ != 0 || !(any(&LocalSweep::wanted) || any(&LocalSweep::is_others));
}

int LocalSweep::exit_code() const {
  if (told_ != 0) return static_cast<int>(told_ == SIGINT ? Fault::kInterrupted : Fault::kSaved);
  for (size_t r = 0; r < board_.states().size(); ++r) {
    if (board_.states()[r].phase == RunPhase::kFailed) return board_.states()[r].exit_code;
    if (const auto code = unbegun_.find(r); code != unbegun_.end()) return code->second;
  }
  return 0;
}

int LocalSweep::run() {
  constexpr double kPause = 0.1;
  while (true) {
    start_more();
    look();
    hear(kPause);
    reap();
    if (!over()) continue;
    board_.look();  // nothing may have come up meanwhile
    if (over()) break;
  }
  next_look_ = {};
  look();
  screen_.reset();
  std::cout << sweep_table(board_) << std::flush;
  return exit_code();
}

}  // namespace

int run_sweep_here(const SweepDirectory& directory, const LocalSweepWish& wish) {
  return LocalSweep(directory, wish).run();
}

}  // namespace anabranch
