#include "runtime/step_guard.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "core/base/error.h"
#include "runtime/schedule.h"

namespace anabranch {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

TEST(StepGuard, SkipsAndCountsNonFiniteSteps) {
  StepGuard guard(0, 8);
  EXPECT_EQ(guard.judge(1, 1), StepGuard::Verdict::kApply);
  EXPECT_EQ(guard.judge(kNan, 1), StepGuard::Verdict::kNonFinite);
  EXPECT_EQ(guard.judge(1, kInf), StepGuard::Verdict::kNonFinite);
  EXPECT_EQ(guard.nonfinite_in_a_row(), 2);
  EXPECT_EQ(guard.judge(1, 1), StepGuard::Verdict::kApply);
  EXPECT_EQ(guard.nonfinite_in_a_row(), 0);
  EXPECT_EQ(guard.skipped(), 2);
}

// Mean 1, deviation 0.1: 1.25 lies within 3 sigma, 1.35 beyond; a low value is no outlier.
TEST(StepGuard, SkipsOutliersOnceItKnowsTheSpread) {
  StepGuard guard(3, 8);
  EXPECT_EQ(guard.judge(100, 1), StepGuard::Verdict::kApply) << "nothing is known yet";
  StepGuard fresh(3, 8);
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(fresh.judge(i % 2 == 0 ? 0.9 : 1.1, 1), StepGuard::Verdict::kApply);
  }
  StepGuard other = fresh;
  EXPECT_EQ(fresh.judge(1.35, 1), StepGuard::Verdict::kOutlier);
  EXPECT_EQ(other.judge(1.25, 1), StepGuard::Verdict::kApply);
  EXPECT_EQ(fresh.judge(0.1, 1), StepGuard::Verdict::kApply);
  EXPECT_EQ(fresh.skipped(), 1);
}

TEST(StepGuard, RestoresItsStateExactly) {
  StepGuard a(2, 8);
  for (int i = 0; i < 20; ++i) a.judge(1.0 / (i + 3), 1.0 / (i + 7));
  a.judge(kNan, 1);
  StepGuard b(2, 8);
  b.restore(a.state());
  EXPECT_EQ(a.state(), b.state());
  EXPECT_EQ(b.nonfinite_in_a_row(), 1);
  EXPECT_THROW(b.restore({1, 2, 3}), Error);
}

TEST(Schedule, WarmsUpAndDecays) {
  const Schedule lr{ScheduleForm::kCosine, 0.1, 10, 110};
  EXPECT_DOUBLE_EQ(lr(0), 0.1);
  EXPECT_DOUBLE_EQ(lr(9), 1.0);
  EXPECT_DOUBLE_EQ(lr(10), 1.0);
  EXPECT_NEAR(lr(60), 0.55, 1e-12);
  EXPECT_NEAR(lr(110), 0.1, 1e-12);
  EXPECT_NEAR(lr(500), 0.1, 1e-12);
}

}  // namespace
}  // namespace anabranch
