// The shape of a learning rate over a run, as a share of its peak.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>

#include "runtime/config/values.h"

namespace anabranch {

// Linear warm-up to 1, then by `form`, with r the last share, W warm-up steps of T in all:
//
//   cosine    r + (1 - r) (1 + cos(pi (s - W) / (T - W))) / 2
//   linear    1, and over the last warmdown * T steps linearly down to r
//   constant  1
//
// Source: Loshchilov & Hutter, "SGDR", 2017, eq. 5, with the GPT-3 warm-up.
struct Schedule {
  ScheduleForm form = ScheduleForm::kCosine;
  double min_ratio = 0.1;
  int64_t warmup_steps = 0;
  int64_t total_steps = 1;
  double warmdown = 0.5;

  [[nodiscard]] double operator()(int64_t step) const {
    if (step < warmup_steps) {
      return static_cast<double>(step + 1) / static_cast<double>(warmup_steps);
    }
    const auto total = static_cast<double>(std::max<int64_t>(total_steps, 1));
    switch (form) {
      case ScheduleForm::kCosine: {
        const double decay = std::max(total - static_cast<double>(warmup_steps), 1.0);
        const double progress = std::min(static_cast<double>(step - warmup_steps) / decay, 1.0);
        return min_ratio + (1 - min_ratio) * (1 + std::cos(std::numbers::pi * progress)) / 2;
      }
      case ScheduleForm::kLinear: {
        const double fall = std::round(warmdown * total), left = total - static_cast<double>(step);
        if (left >= fall) return 1;
        return min_ratio + (1 - min_ratio) * std::max(left, 0.0) / fall;
      }
      case ScheduleForm::kConstant:
        break;
    }
    return 1;
  }

  // Whether all steps before `step` have the same shares in both.
  [[nodiscard]] bool begins_as(const Schedule& other, int64_t step) const {
    for (int64_t s = 0; s < step; ++s) {
      if ((*this)(s) != other(s)) return false;
    }
    return true;
  }
};

}  // namespace anabranch
