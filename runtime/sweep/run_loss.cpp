#include "runtime/sweep/run_loss.h"

#include <algorithm>

namespace anabranch {

namespace {

constexpr double kTail = 0.1;  // of the tokens, over which noisy losses of steps are averaged

std::optional<double> step_loss(const std::vector<StepReport>& steps, int64_t tokens) {
  const auto after = [&steps](int64_t count) {
    return std::ranges::upper_bound(steps, count, {}, &StepReport::tokens);
  };
  const auto end = after(tokens);
  if (end == steps.begin()) return {};
  const auto last = std::prev(end);
  const auto start = static_cast<int64_t>((1 - kTail) * static_cast<double>(last->tokens));
  const auto first = std::min(after(start), last);
  double sum = 0;
  for (auto step = first; step != end; ++step) sum += step->loss;
  return sum / static_cast<double>(end - first);
}

}  // namespace

int64_t reached_tokens(const RunSeries& series, LossKind by, int64_t batch_tokens) {
  if (by == LossKind::kLoss) return series.steps.empty() ? 0 : series.steps.back().tokens;
  const std::optional<SourceMean> last = series.last_eval();
  return last ? last->step * batch_tokens : 0;
}

std::optional<double> loss_at(const RunSeries& series, LossKind by, int64_t batch_tokens,
                              int64_t tokens) {
  if (by == LossKind::kLoss) return step_loss(series.steps, tokens);
  const std::optional<SourceMean> last = series.last_eval(0, tokens / batch_tokens);
  return last ? std::optional(last->loss) : std::nullopt;
}

}  // namespace anabranch
