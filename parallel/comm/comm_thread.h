// The thread of a rank that communicates: a queue of collectives, run in order.
//
// It is to CPU ranks what a stream is to NCCL. Only this thread calls MPI, so the order of calls is
// the order in which the rank's program started them.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "core/base/error.h"
#include "core/base/trace.h"
#include "parallel/comm/group.h"

namespace anabranch {

// What a communication thread shares with the handles of its works, which may outlive it, and with
// the rank's communication stream if it has a GPU.
struct CommState {
  std::mutex lock;
  std::condition_variable changed;
  std::optional<Error> failure;  // the first; every later work fails with it
  double deadline = 0;           // seconds; 0: none
  int64_t moves = 0;             // counts what a work does: begins, moves data, ends
  double blocked = 0;            // seconds that Work::wait() held up
  std::string who;               // "rank 3 of 8 on h2"
};

struct HostWork final : WorkState {
  HostWork(std::shared_ptr<CommState> state, std::string what)
      : comm(std::move(state)), text(std::move(what)) {}

  void wait() override;
  bool done() override;
  double seconds() override;
  double held_up() override;

  std::shared_ptr<CommState> comm;
  std::string text;      // of the collective
  bool is_done = false;  // under comm->lock, as all below; a work that failed never is
  bool is_over = false;  // done or failed
  double took = 0, blocked = 0;
};

class CommThread {
 public:
  struct Job {
    std::string text;
    std::optional<CollectiveKind> kind;  // none: not counted
    int64_t bytes = 0;
    std::function<void()> run;
  };

  // `who` names this rank in messages.
  explicit CommThread(std::string who);
  // Runs what is queued, or fails it if the thread has failed, and ends.
  ~CommThread();
  CommThread(const CommThread&) = delete;
  CommThread& operator=(const CommThread&) = delete;

  Work submit(Job job);

  // Fails what is queued and all that comes, unless it has failed before.
  void fail(const Error& error);
  // Returns when nothing is queued or runs.
  void drain();
  // For jobs that wait: throws if fail() was called.
  void check() const;

  void set_deadline(double seconds);
  [[nodiscard]] double deadline() const;
  void set_trace(Trace* trace);
  [[nodiscard]] CommStats stats() const;
  [[nodiscard]] CommProgress progress() const;
  // For jobs that take long: data has moved.
  void moved();

  // For collectives that run elsewhere: one was started; it took from `begin` to `end`.
  void note_start(const std::string& text);
  void note_end(const std::string& text, CollectiveKind kind, int64_t bytes,
                std::chrono::steady_clock::time_point begin,
                std::chrono::steady_clock::time_point end);

  [[nodiscard]] const std::string& who() const { return state_->who; }

  [[nodiscard]] const std::shared_ptr<CommState>& state() const { return state_; }

 private:
  struct Queued {
    Job job;
    std::shared_ptr<HostWork> work;
  };

  void loop();
  bool run(Queued& item);  // whether it was done
  // Lock held.
  void count(CollectiveKind kind, int64_t bytes, std::chrono::steady_clock::time_point begin,
             std::chrono::steady_clock::time_point end);

  std::shared_ptr<CommState> state_;
  std::deque<Queued> queue_;  // under state_->lock, as all below
  bool busy_ = false;
  bool stop_ = false;
  Trace* trace_ = nullptr;
  CommStats stats_;
  CommProgress progress_;
  std::thread thread_;
};

}  // namespace anabranch
