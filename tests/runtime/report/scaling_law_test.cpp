#include "runtime/report/scaling_law.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/tolerance.h"

namespace anabranch {
namespace {

using testing::HasSubstr;

constexpr double kFloor = 1.8, kScale = 400, kExponent = 0.3;

double law(double n) { return kFloor + kScale * std::pow(n, -kExponent); }

// Near normal: the sum of twelve uniform numbers less 6.
class Noise {
 public:
  explicit Noise(uint64_t seed) : state_(seed) {}

  double operator()() {
    double sum = -6;
    for (int i = 0; i < 12; ++i) {
      state_ = state_ * 6364136223846793005U + 1442695040888963407U;
      sum += static_cast<double>(state_ >> 11) * 0x1p-53;
    }
    return sum;
  }

 private:
  uint64_t state_;
};

std::vector<SizedLoss> runs_of(const std::vector<double>& sizes, int seeds, double deviation,
                               uint64_t seed) {
  Noise noise(seed);
  std::vector<SizedLoss> runs;
  for (const double n : sizes) {
    for (int s = 0; s < seeds; ++s) runs.push_back({n, law(n) + deviation * noise()});
  }
  return runs;
}

bool within(const FittedConstant& constant, double planted) {
  return constant.interval.low <= planted && planted <= constant.interval.high;
}

TEST(ScalingLaw, FindsWhatWasPlanted) {
  const ScalingLaw fit = fit_scaling_law(runs_of({8.5e7, 2e8, 3.5e8, 7.6e8}, 1, 0, 1));
  ASSERT_EQ(fit.refused, "");
  EXPECT_NEAR(fit.exponent.value, kExponent, test::kFits.absolute);
  EXPECT_NEAR(fit.floor.value, kFloor, test::kFits.absolute);
  EXPECT_NEAR(fit.scale() / kScale, 1, 20 * test::kFits.absolute);
  EXPECT_NEAR(fit.at(1e9), law(1e9), test::kFits.absolute);
  EXPECT_EQ(fit.sizes, 4);
}

// Alone that an interval holds what was planted may be chance: 95% of many must, and no more.
TEST(ScalingLaw, ItsIntervalsHoldIt95TimesOf100) {
  constexpr int kTrials = 200;
  int exponents = 0, floors = 0;
  for (int i = 0; i < kTrials; ++i) {
    const ScalingLaw fit =
        fit_scaling_law(runs_of({1e7, 1e8, 1e9}, 3, 0.005, static_cast<uint64_t>(i)));
    ASSERT_EQ(fit.refused, "");
    exponents += within(fit.exponent, kExponent) ? 1 : 0;
    floors += within(fit.floor, kFloor) ? 1 : 0;
  }
  for (const int held : {exponents, floors}) {
    EXPECT_GE(held, kTrials * 90 / 100);
    EXPECT_LE(held, kTrials * 99 / 100);
  }
}

// The best fit of three points passes through them: with sizes 1, 4, 16 and alpha 1/2 losses are
// E + A, E + A/2, E + A/4.
TEST(ScalingLaw, ThreeSizesOfOneSeedHaveNoInterval) {
  const ScalingLaw fit = fit_scaling_law({{1, 5}, {4, 3}, {16, 2}});
  ASSERT_EQ(fit.refused, "");
  EXPECT_NEAR(fit.exponent.value, 0.5, test::kFits.absolute);
  EXPECT_NEAR(fit.floor.value, 1, test::kFits.absolute);
  EXPECT_NEAR(fit.scale(), 4, test::kFits.absolute);
  EXPECT_TRUE(std::isnan(fit.exponent.interval.low));
}

TEST(ScalingLaw, TwoSizesHaveNoFloor) {
  const ScalingLaw fit = fit_scaling_law({{100, 4}, {10000, 2}});  // 100^-alpha = 1/2
  ASSERT_EQ(fit.refused, "");
  EXPECT_FALSE(fit.has_floor);
  EXPECT_NEAR(fit.exponent.value, std::log(2) / std::log(100), test::kFits.absolute);
  EXPECT_EQ(fit.floor.value, 0);
  EXPECT_NEAR(fit.at(100), 4, test::kFits.absolute);
}

TEST(ScalingLaw, RefusesWhatDoesNotDetermineIt) {
  EXPECT_THAT(fit_scaling_law({}).refused, HasSubstr("0 sizes"));
  EXPECT_THAT(fit_scaling_law({{5, 2}, {5, 3}}).refused, HasSubstr("1 size:"));
  EXPECT_THAT(fit_scaling_law({{1, 2}, {10, 2.5}}).refused, HasSubstr("do not fall"));
  EXPECT_THAT(fit_scaling_law({{1, 2}, {10, 2.5}, {100, 3}}).refused, HasSubstr("fall"));
  EXPECT_THAT(fit_scaling_law({{1, 3}, {10, 2.9}, {100, 2}}).refused, HasSubstr("no faster"));
  EXPECT_THAT(fit_scaling_law({{1, 3}, {10, 2}, {100, 2}}).refused, HasSubstr("stop falling"));
}

// Open where the runs leave it open: noise as large as what falls.
TEST(ScalingLaw, AnIntervalMayBeOpen) {
  const ScalingLaw fit =
      fit_scaling_law({{1, 5.0}, {1, 4.0}, {4, 3.0}, {4, 3.6}, {16, 2.0}, {16, 2.9}});
  ASSERT_EQ(fit.refused, "");
  EXPECT_TRUE(std::isinf(fit.floor.interval.low));
  EXPECT_TRUE(std::isfinite(fit.floor.interval.high));
}

}  // namespace
}  // namespace anabranch
