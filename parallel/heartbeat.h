// What a rank is doing: told by its training thread, read by whoever watches that it moves on.
#pragma once

#include <atomic>
#include <cstdint>

namespace anabranch {

class Heartbeat {
 public:
  // How soon the next beat is due: as steps go, or later, where files are read or written.
  enum class Pace : uint8_t { kStep, kLong };

  // A beat: the rank comes to `phase`, a literal ("forward", "save"), or moves on within it.
  void at(const char* phase, Pace pace = Pace::kStep) {
    phase_.store(phase, std::memory_order_relaxed);
    pace_.store(pace, std::memory_order_relaxed);
    beats_.fetch_add(1, std::memory_order_release);
  }

  // The step that is under way, from 1.
  void set_step(int64_t step) { step_.store(step, std::memory_order_relaxed); }

  [[nodiscard]] int64_t beats() const { return beats_.load(std::memory_order_acquire); }

  [[nodiscard]] const char* phase() const { return phase_.load(std::memory_order_relaxed); }

  [[nodiscard]] Pace pace() const { return pace_.load(std::memory_order_relaxed); }

  [[nodiscard]] int64_t step() const { return step_.load(std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> beats_{0}, step_{0};
  std::atomic<const char*> phase_{"start"};
  std::atomic<Pace> pace_{Pace::kLong};
};

}  // namespace anabranch
