// The figures of a step's line that leave the program, by their names in metrics.jsonl.
#pragma once

#include <array>
#include <limits>
#include <string_view>

#include "monitoring/metrics.h"
#include "runtime/reports.h"

namespace anabranch {

struct StepFigure {
  Metric metric;
  double StepReport::*field;

  [[nodiscard]] std::string_view name() const { return spec_of(metric).name; }

  [[nodiscard]] double of(const StepReport& report) const {
    return metric == Metric::kMfu && report.mfu < 0 ? std::numeric_limits<double>::quiet_NaN()
                                                    : report.*field;
  }
};

inline constexpr std::array kStepFigures{
    StepFigure{Metric::kLoss, &StepReport::loss},
    StepFigure{Metric::kLearningRate, &StepReport::learning_rate},
    StepFigure{Metric::kGradientNorm, &StepReport::grad_norm},
    StepFigure{Metric::kStepSeconds, &StepReport::seconds},
    StepFigure{Metric::kTokensPerSecond, &StepReport::tokens_per_second},
    StepFigure{Metric::kFlopPerSecond, &StepReport::flops_per_second},
    StepFigure{Metric::kMfu, &StepReport::mfu},
};

}  // namespace anabranch
