#include "runtime/sweep/run_loss.h"

#include <algorithm>

namespace anabranch {

namespace {

constexpr double kTail = 0.1;  // of the tokens, over which noisy losses of steps are averaged

// A sum with how many went into it.
struct Mean {
  double sum = 0;
  int64_t count = 0;

  void add(double value) {
    sum += value;
    ++count;
  }

  [[nodiscard]] std::optional<double> value() const {
    if (count == 0) return {};
    return sum / static_cast<double>(count);
  }
};

std::optional<double> step_loss(const std::vector<StepReport>& steps, int64_t tokens) {
  const auto after = [&steps](int64_t count) {
    return std::ranges::upper_bound(steps, count, {}, &StepReport::tokens);
  };
  const auto end = after(tokens);
  if (end == steps.begin()) return {};
  const auto last = std::prev(end);
  const auto start = static_cast<int64_t>((1 - kTail) * static_cast<double>(last->tokens));
  Mean mean;
  for (auto step = std::min(after(start), last); step != end; ++step) mean.add(step->loss);
  return mean.value();
}

std::optional<double> evaluated_loss(const RunSeries& series, int64_t last_step) {
  int64_t at = -1;
  for (const EvalReport& eval : series.evals) {
    if (!eval.looks_ahead && eval.step <= last_step) at = std::max(at, eval.step);
  }
  Mean mean;
  for (const EvalReport& eval : series.evals) {
    if (!eval.looks_ahead && eval.step == at) mean.add(eval.loss);
  }
  return mean.value();
}

}  // namespace

int64_t reached_tokens(const RunSeries& series, LossKind by, int64_t batch_tokens) {
  if (by == LossKind::kLoss) return series.steps.empty() ? 0 : series.steps.back().tokens;
  int64_t step = 0;
  for (const EvalReport& eval : series.evals) {
    if (!eval.looks_ahead) step = std::max(step, eval.step);
  }
  return step * batch_tokens;
}

std::optional<double> loss_at(const RunSeries& series, LossKind by, int64_t batch_tokens,
                              int64_t tokens) {
  if (by == LossKind::kLoss) return step_loss(series.steps, tokens);
  return evaluated_loss(series, tokens / batch_tokens);
}

}  // namespace anabranch
