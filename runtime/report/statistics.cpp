#include "runtime/report/statistics.h"

#include <cmath>
#include <numbers>

#include "core/base/error.h"

namespace anabranch {

namespace {

constexpr double kConfidence = 0.975, kPower = 0.8;  // of one side

// The share between -t and t, negative for negative t, with tan(angle) = t / sqrt(freedom).
double share_within(double angle, int64_t freedom) {
  const double sine = std::sin(angle), cosine = std::cos(angle);
  const bool odd = freedom % 2 != 0;
  double term = odd ? cosine : 1, sum = 0;
  for (int64_t k = odd ? 1 : 0; k <= freedom - 2; k += 2) {
    sum += term;
    term *= cosine * cosine * static_cast<double>(k + 1) / static_cast<double>(k + 2);
  }
  return odd ? (angle + sine * sum) * 2 / std::numbers::pi : sine * sum;
}

}  // namespace

Sample sample_of(const std::vector<double>& values) {
  Sample sample;
  sample.count = std::ssize(values);
  if (values.empty()) return sample;
  const auto n = static_cast<double>(values.size());
  double sum = 0, squares = 0;
  for (const double value : values) sum += value;
  sample.mean = sum / n;
  for (const double value : values) squares += (value - sample.mean) * (value - sample.mean);
  if (values.size() > 1) sample.deviation = std::sqrt(squares / (n - 1));
  return sample;
}

double student_t_below(double t, int64_t freedom) {
  AB_CHECK(freedom >= 1, "Student's t with ", freedom, " degrees of freedom");
  return 0.5 + 0.5 * share_within(std::atan(t / std::sqrt(static_cast<double>(freedom))), freedom);
}

double student_t_quantile(double p, int64_t freedom) {
  AB_CHECK(freedom >= 1 && p > 0 && p < 1, "a quantile ", p, " of ", freedom, " degrees");
  double low = -std::numbers::pi / 2, high = std::numbers::pi / 2;
  for (double middle = 0; low < middle && middle < high; middle = low + (high - low) / 2) {
    (share_within(middle, freedom) < 2 * p - 1 ? low : high) = middle;
  }
  return std::sqrt(static_cast<double>(freedom)) * std::tan(low + (high - low) / 2);
}

Interval mean_interval(const Sample& sample) {
  if (sample.count < 2) return {};
  const double half = student_t_quantile(kConfidence, sample.count - 1) * sample.deviation /
                      std::sqrt(static_cast<double>(sample.count));
  return {sample.mean - half, sample.mean + half};
}

int64_t seeds_needed(const Sample& differences) {
  const double ratio = differences.deviation / std::abs(differences.mean);
  if (!std::isfinite(differences.mean) || !std::isfinite(differences.deviation)) return 0;
  if (differences.mean == 0) return differences.deviation > 0 ? kMostSeeds + 1 : 0;
  const auto enough = [ratio](int64_t n) {
    const double root =
        (student_t_quantile(kConfidence, n - 1) + student_t_quantile(kPower, n - 1)) * ratio;
    return static_cast<double>(n) >= root * root;
  };
  if (!enough(kMostSeeds)) return kMostSeeds + 1;
  int64_t low = 1, high = kMostSeeds;  // the right side falls as n grows
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    (enough(middle) ? high : low) = middle;
  }
  return high;
}

}  // namespace anabranch
