// The learning rate over a run.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>

namespace anabranch {

// Linear warm-up, then half a cosine down to a fraction of the peak.
//
//   lr(s) = peak * (s + 1) / warmup                                     s < warmup
//   lr(s) = peak * (r + (1 - r) * (1 + cos(pi * (s - warmup) / (steps - warmup))) / 2)   else
//
// Source: Loshchilov & Hutter, "SGDR", 2017, eq. 5, with the GPT-3 warm-up.
struct CosineSchedule {
  double peak = 3e-4;
  double min_ratio = 0.1;  // r: the last rate over the peak
  int64_t warmup_steps = 0;
  int64_t total_steps = 1;

  [[nodiscard]] double operator()(int64_t step) const {
    if (step < warmup_steps) {
      return peak * static_cast<double>(step + 1) / static_cast<double>(warmup_steps);
    }
    const auto decay = static_cast<double>(std::max<int64_t>(total_steps - warmup_steps, 1));
    const double progress = std::min(static_cast<double>(step - warmup_steps) / decay, 1.0);
    const double cosine = (1 + std::cos(std::numbers::pi * progress)) / 2;
    return peak * (min_ratio + (1 - min_ratio) * cosine);
  }
};

}  // namespace anabranch
