#include "monitoring/history.h"

#include <array>
#include <atomic>
#include <cmath>
#include <limits>
#include <thread>

#include <gtest/gtest.h>

#include "core/base/error.h"
#include "monitoring/run_history.h"

namespace anabranch {

namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

TEST(History, KeepsWhatFits) {
  History history(2, 4);
  for (int i = 1; i <= 4; ++i) history.add(i, std::array{10.0 * i, kUnknown});
  const auto points = history.points();
  ASSERT_EQ(points.size(), 4U);
  EXPECT_EQ(points[2].x, 3);
  EXPECT_EQ(points[2].figures[0], 30);
  EXPECT_TRUE(std::isnan(points[2].figures[1]));
}

TEST(History, HalvesItsResolutionWhenFull) {
  History history(1, 4);
  for (int i = 1; i <= 7; ++i) history.add(i, std::array{1.0 * i});
  // 1 2, 3 4, 5 6, and a pair that has begun.
  const auto points = history.points();
  ASSERT_EQ(points.size(), 4U);
  EXPECT_EQ(points[0].x, 2);
  EXPECT_EQ(points[0].figures[0], 1.5);
  EXPECT_EQ(points[2].x, 6);
  EXPECT_EQ(points[2].figures[0], 5.5);
  EXPECT_EQ(points[3].x, 7);
  EXPECT_EQ(points[3].figures[0], 7);
}

TEST(History, StaysBoundedAndTrueOverALongRun) {
  History history(1, 8);
  constexpr int kSteps = 100000;
  for (int i = 1; i <= kSteps; ++i) history.add(i, std::array{2.0 * i});
  const auto points = history.points();
  EXPECT_LE(points.size(), 8U);
  EXPECT_GE(points.size(), 4U);
  EXPECT_EQ(points.back().x, kSteps);
  double before = 0;
  for (const auto& point : points) {  // means of a straight line lie in the middle of their steps
    EXPECT_DOUBLE_EQ(point.figures[0], before + 1 + point.x);
    before = point.x;
  }
}

TEST(History, UnknownValuesDoNotCount) {
  History history(1, 2);
  for (const double value : {4.0, kUnknown, kUnknown, kUnknown, 8.0}) {
    history.add(0, std::array{value});
  }
  const auto points = history.points();
  ASSERT_EQ(points.size(), 2U);
  EXPECT_EQ(points[0].figures[0], 4);
  EXPECT_EQ(points[1].figures[0], 8);
}

TEST(History, WhoReadsDoesNotHoldUpWhoAdds) {
  History history(4, 512);
  std::atomic<bool> done = false;
  std::thread reader([&] {
    while (!done) static_cast<void>(history.points());
  });
  for (int i = 0; i < 20000; ++i) history.add(i, std::array{1.0, 2.0, 3.0, 4.0});
  done = true;
  reader.join();
  for (const auto& point : history.points()) EXPECT_EQ(point.figures[3], 4);
}

TEST(History, RefusesOtherShapes) {
  EXPECT_THROW(History(0, 2), Error);
  EXPECT_THROW(History(1, 3), Error);
  History history(2, 2);
  EXPECT_THROW(history.add(1, std::array{1.0}), Error);
}

TEST(RunHistory, TakesGaugesAfterAStep) {
  Metrics metrics(Labels{});
  RunHistory history({"web", "books"});
  metrics.set(Metric::kLoss, 3);
  metrics.set(Metric::kResidentMemory, 7, "max");
  history.step(metrics, 1, 0.5);
  metrics.set(Metric::kLoss, 2);
  history.step(metrics, 2, 0.25);
  using Points = std::vector<std::pair<double, double>>;
  EXPECT_EQ(history.course(Metric::kLoss).points, (Points{{1, 3}, {2, 2}}));
  EXPECT_EQ(history.course(Metric::kResidentMemory, "max").points, (Points{{1, 7}, {2, 7}}));
  EXPECT_EQ(history.seconds().points, (Points{{1, 0.5}, {2, 0.25}}));
  EXPECT_TRUE(history.course(Metric::kMfu).points.empty());
  EXPECT_TRUE(history.course(Metric::kGpuUtilisation, "median").points.empty());
  EXPECT_THROW(history.course(Metric::kStep), Error);
}

TEST(RunHistory, KeepsValidationsBySource) {
  RunHistory history({"web", "books"});
  history.validation(10, Metric::kValidationLoss, "books", 4);
  history.validation(10, Metric::kValidationLoss, "web", 5);
  history.validation(10, Metric::kValidationLossLookingAhead, "web", 1);
  history.validation(20, Metric::kValidationLoss, "books", 3);
  const auto all = history.validations();
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(all[0].name, "web");
  EXPECT_EQ(all[1].name, "books");
  EXPECT_EQ(all[1].points.size(), 2U);
  EXPECT_EQ(all[1].points[1], (std::pair{20.0, 3.0}));
  EXPECT_EQ(all[2].metric, Metric::kValidationLossLookingAhead);
}

}  // namespace

}  // namespace anabranch
