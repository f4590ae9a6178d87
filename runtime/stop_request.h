// A wish to stop, as a signal handler can state it and every rank can agree on it.
#pragma once

#include <atomic>

namespace anabranch {

// What a run does at the next step boundary, in rising order of force.
enum class StopKind : int {
  kNone = 0,
  kSave = 1,       // save and go on (a `save` file)
  kRequeue = 2,    // save, exit 75: run me again (USR1, TERM)
  kInterrupt = 3,  // save, exit 130 (INT, a `stop` file)
};

// Written by a signal handler, read by the trainer. Lock-free, so a handler may touch it.
class StopRequest {
 public:
  void raise(StopKind kind) {
    int seen = kind_.load();
    while (seen < static_cast<int>(kind) &&
           !kind_.compare_exchange_weak(seen, static_cast<int>(kind))) {
    }
  }

  [[nodiscard]] StopKind pending() const { return static_cast<StopKind>(kind_.load()); }

 private:
  std::atomic<int> kind_{0};
  static_assert(std::atomic<int>::is_always_lock_free);
};

}  // namespace anabranch
