#include "runtime/step_guard.h"

#include <cmath>

#include "core/base/error.h"

namespace anabranch {

bool StepGuard::outlier(const std::vector<double>& history, double value) const {
  // A deviation estimated from a few steps means nothing, so half a window must be there first.
  if (sigma_ == 0 || 2 * std::ssize(history) < window_) return false;
  double mean = 0, square = 0;
  for (const double v : history) mean += v;
  mean /= static_cast<double>(history.size());
  for (const double v : history) square += (v - mean) * (v - mean);
  const double deviation = std::sqrt(square / static_cast<double>(history.size()));
  return value > mean + sigma_ * deviation;
}

StepGuard::Verdict StepGuard::judge(double loss, double grad_norm) {
  if (!std::isfinite(loss) || !std::isfinite(grad_norm)) {
    ++in_a_row_;
    ++skipped_;
    return Verdict::kNonFinite;
  }
  in_a_row_ = 0;
  if (outlier(losses_, loss) || outlier(norms_, grad_norm)) {
    ++skipped_;
    return Verdict::kOutlier;
  }
  for (auto [history, value] : {std::pair{&losses_, loss}, std::pair{&norms_, grad_norm}}) {
    history->push_back(value);
    if (std::ssize(*history) > window_) history->erase(history->begin());
  }
  return Verdict::kApply;
}

std::vector<double> StepGuard::state() const {
  std::vector<double> all{static_cast<double>(in_a_row_), static_cast<double>(skipped_)};
  for (size_t i = 0; i < losses_.size(); ++i) {
    all.push_back(losses_[i]);
    all.push_back(norms_[i]);
  }
  return all;
}

void StepGuard::restore(const std::vector<double>& state) {
  if (state.size() < 2 || state.size() % 2 != 0) {
    throw data_error("a checkpoint's step guard holds ", state.size(),
                     " numbers; expected two counters and pairs of loss and norm");
  }
  in_a_row_ = static_cast<int64_t>(state[0]);
  skipped_ = static_cast<int64_t>(state[1]);
  losses_.clear();
  norms_.clear();
  for (size_t i = 2; i < state.size(); i += 2) {
    losses_.push_back(state[i]);
    norms_.push_back(state[i + 1]);
  }
}

}  // namespace anabranch
