#include "runtime/bench/paired.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/base/error.h"
#include "runtime/bench/timing.h"

namespace anabranch {

double coin_at_most(int64_t k, int64_t n) {
  // Each term from the one before, in logarithms: 2^-n has no double for a long bench.
  const auto throws = static_cast<double>(n);
  double term = -throws * std::log(2.0), sum = 0;
  for (int64_t i = 0; i <= std::min(k, n); ++i) {
    sum += std::exp(term);
    term += std::log(throws - static_cast<double>(i)) - std::log(static_cast<double>(i + 1));
  }
  return std::min(sum, 1.0);
}

PairedRatio paired_ratio(std::span<const double> numerator, std::span<const double> denominator) {
  AB_CHECK(numerator.size() == denominator.size() && !numerator.empty(), numerator.size(), " and ",
           denominator.size(), " values make no pairs");
  std::vector<double> ratios;
  for (size_t i = 0; i < numerator.size(); ++i) {
    AB_CHECK(numerator[i] > 0 && denominator[i] > 0, "pair ", i, " is ", numerator[i], " and ",
             denominator[i], ", must be positive");
    ratios.push_back(numerator[i] / denominator[i]);
  }
  std::ranges::sort(ratios);
  constexpr double kTail = 0.025;
  const auto pairs = static_cast<int64_t>(ratios.size());
  int64_t below = 0;  // ratios outside the interval on either side
  while (2 * (below + 1) < pairs && coin_at_most(below + 1, pairs) <= kTail) ++below;
  PairedRatio result;
  result.pairs = pairs;
  result.low = ratios[static_cast<size_t>(below)];
  result.high = ratios[static_cast<size_t>(pairs - 1 - below)];
  result.confidence = std::max(1 - 2 * coin_at_most(below, pairs), 0.0);
  result.median = median(ratios);
  return result;
}

}  // namespace anabranch
