// How long something has been waited for, by a process that may be stopped meanwhile.
#pragma once

#include <algorithm>
#include <chrono>

namespace anabranch {

// Time counts only as far as this process runs: what stops it (SIGSTOP, a scheduler, a machine that
// sleeps) makes one long gap between two ticks, and no one else is to blame for that.
class Patience {
 public:
  using Clock = std::chrono::steady_clock;

  static constexpr double kLongestGap = 1;  // seconds between two ticks that count at most

  // To be called often. The seconds since the start or the last reset.
  double tick() {
    const auto now = Clock::now();
    seconds_ += std::min(std::chrono::duration<double>(now - last_).count(), kLongestGap);
    last_ = now;
    return seconds_;
  }

  void reset() {
    last_ = Clock::now();
    seconds_ = 0;
  }

 private:
  Clock::time_point last_ = Clock::now();
  double seconds_ = 0;
};

}  // namespace anabranch
