// Decides whether a step's update is applied.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace anabranch {

// Skips steps whose loss or gradient norm is not finite, or lies more than `sigma` standard
// deviations above the mean of the last `window` accepted steps.
//
// Every rank sees the same reduced values, so all of them decide alike. The state is part of a
// checkpoint. Source of the outlier rule: OLMo-core's skip-step optimizer, and llm.c.
class StepGuard {
 public:
  enum class Verdict : uint8_t { kApply, kNonFinite, kOutlier };

  // `sigma` 0 turns the outlier rule off.
  StepGuard(double sigma, int64_t window) : sigma_(sigma), window_(window) {}

  Verdict judge(double loss, double grad_norm);

  // Steps in a row that were skipped for a non-finite value.
  [[nodiscard]] int64_t nonfinite_in_a_row() const { return in_a_row_; }

  [[nodiscard]] int64_t skipped() const { return skipped_; }

  // The state as numbers, for a checkpoint, and back.
  [[nodiscard]] std::vector<double> state() const;
  void restore(const std::vector<double>& state);

 private:
  [[nodiscard]] bool outlier(const std::vector<double>& history, double value) const;

  double sigma_;
  int64_t window_;
  int64_t in_a_row_ = 0;
  int64_t skipped_ = 0;
  std::vector<double> losses_, norms_;  // of the last accepted steps, oldest first
};

}  // namespace anabranch
