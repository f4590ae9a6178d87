// What a few runs say of many: means, intervals, and how many seeds a claim needs.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

namespace anabranch {

// Of values that are finite. The deviation is that of a sample, with n - 1; not-a-number for fewer
// than two values, as is the mean of none.
struct Sample {
  int64_t count = 0;
  double mean = std::numeric_limits<double>::quiet_NaN();
  double deviation = std::numeric_limits<double>::quiet_NaN();
};

Sample sample_of(const std::vector<double>& values);

// The share of Student's t with so many degrees of freedom that lies below t.
// Source: Abramowitz & Stegun, 26.7.3 and 26.7.4, exact for whole degrees of freedom; the work
// grows with their number. Throws Error unless there is one or more.
double student_t_below(double t, int64_t freedom);

// The t below which a share p, 0 < p < 1, lies.
double student_t_quantile(double p, int64_t freedom);

struct Interval {
  double low = std::numeric_limits<double>::quiet_NaN();
  double high = std::numeric_limits<double>::quiet_NaN();
};

// The 95% interval of a mean: mean -+ t(0.975, n - 1) deviation / sqrt(n); not-a-number for fewer
// than two values.
Interval mean_interval(const Sample& sample);

inline constexpr int64_t kMostSeeds = 1000;

// Seeds at which a paired test of a difference at 5%, two-sided, finds one of this size in 80% of
// the cases: the smallest n of 2 or more with
//
//   n >= ((t(0.975, n - 1) + t(0.8, n - 1)) deviation / |mean|)^2
//
// which is within one or two of what the non-central t says. kMostSeeds + 1: more than kMostSeeds.
// 0: the sample has no deviation, or not a finite one, to tell it by.
int64_t seeds_needed(const Sample& differences);

}  // namespace anabranch
