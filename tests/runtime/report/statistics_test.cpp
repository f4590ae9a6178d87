#include "runtime/report/statistics.h"

#include <cmath>

#include <gtest/gtest.h>

#include "core/base/error.h"
#include "tests/support/tolerance.h"

namespace anabranch {
namespace {

// Quantiles and shares are scipy.stats.t.ppf and .cdf, version 1.17.
constexpr double kNear = test::kStatistics.absolute;

TEST(Statistics, DeviationsAreThoseOfASample) {
  const Sample sample = sample_of({2.0, 4.0, 9.0});
  EXPECT_EQ(sample.count, 3);
  EXPECT_DOUBLE_EQ(sample.mean, 5.0);
  EXPECT_DOUBLE_EQ(sample.deviation, std::sqrt(13.0));  // (9 + 1 + 16) / 2
  EXPECT_DOUBLE_EQ(sample_of({3.5}).mean, 3.5);
  EXPECT_TRUE(std::isnan(sample_of({3.5}).deviation));
  EXPECT_TRUE(std::isnan(sample_of({}).mean));
}

TEST(Statistics, StudentsQuantilesAreTheTables) {
  struct Case {
    double p;
    int64_t freedom;
    double t;
  };

  for (const Case& c : {Case{0.975, 1, 12.706204736432095}, Case{0.975, 2, 4.302652729911275},
                        Case{0.975, 3, 3.182446305284263}, Case{0.975, 10, 2.2281388519649385},
                        Case{0.975, 30, 2.0422724563012373}, Case{0.8, 1, 1.3763819204711736},
                        Case{0.8, 2, 1.0606601717798212}, Case{0.8, 7, 0.8960296443137703},
                        Case{0.025, 2, -4.302652729911275}, Case{0.5, 4, 0}}) {
    EXPECT_NEAR(student_t_quantile(c.p, c.freedom), c.t, kNear) << c.p << " " << c.freedom;
    EXPECT_NEAR(student_t_below(c.t, c.freedom), c.p, kNear) << c.p << " " << c.freedom;
  }
  EXPECT_NEAR(student_t_below(1, 1), 0.75, kNear);  // Cauchy
  EXPECT_NEAR(student_t_below(-1.5, 6), 0.09214036807074101, kNear);
  EXPECT_THROW(static_cast<void>(student_t_below(1, 0)), Error);
}

TEST(Statistics, IntervalsOfMeans) {
  // -0.02, -0.01, -0.03: mean -0.02, sd 0.01, half 4.302652730 * 0.01 / sqrt(3).
  const Interval interval = mean_interval(sample_of({-0.02, -0.01, -0.03}));
  EXPECT_NEAR(interval.low, -0.0448413771, kNear);
  EXPECT_NEAR(interval.high, 0.0048413771, kNear);
  EXPECT_TRUE(std::isnan(mean_interval(sample_of({-0.02})).low));
}

TEST(Statistics, SeedsThatADifferenceNeeds) {
  const auto needed = [](double mean, double deviation) {
    return seeds_needed({.count = 3, .mean = mean, .deviation = deviation});
  };
  // sd / |mean| = 1/2: n = 4 has (3.18245 + 0.97847)^2 / 4 = 4.3; n = 5 (2.77645 + 0.94096)^2 / 4.
  EXPECT_EQ(needed(-0.02, 0.01), 5);
  // 1: n = 9 has (2.30600 + 0.88889)^2 = 10.2, n = 10 (2.26216 + 0.88340)^2 = 9.9.
  EXPECT_EQ(needed(0.01, 0.01), 10);
  EXPECT_EQ(needed(0.01, 0.05), 199);  // the non-central t says 199
  EXPECT_EQ(needed(0.01, 0), 2);
  EXPECT_EQ(needed(1e-6, 0.01), kMostSeeds + 1);
  EXPECT_EQ(needed(0, 0.01), kMostSeeds + 1);
  EXPECT_EQ(seeds_needed(sample_of({0.01})), 0);
}

}  // namespace
}  // namespace anabranch
