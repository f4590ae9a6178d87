// Which points end early, on losses made up.
#include "runtime/sweep/stop_early.h"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/sweep/run_loss.h"

namespace anabranch {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr int64_t kBatch = 10, kSteps = 100;

// Evaluated every ten steps, the loss falling by 0.01 each time to `loss`.
RunSeries evaluated(double loss, int64_t steps) {
  RunSeries series;
  for (int64_t step = 10; step <= steps; step += 10) {
    EvalReport report;
    report.step = step;
    report.loss = loss + 0.01 * static_cast<double>(kSteps - step) / 10;
    series.evals.push_back(report);
  }
  return series;
}

// Points of two seeds each, all of one size unless said.
class EarlyStops : public testing::Test {
 protected:
  void add(const std::string& id, const std::string& size, std::vector<RunSoFar> runs) {
    RecordedPoint point;
    point.id = id;
    point.settings = {{"size", size}};
    point.steps = kSteps;
    point.batch_tokens = kBatch;
    for (RunSoFar& run : runs) {
      record_.runs.push_back({id, record_.points.size(), 0});
      runs_.push_back(std::move(run));
    }
    record_.points.push_back(point);
  }

  void add(const std::string& id, double loss, int64_t steps) {
    add(id, "s", {{evaluated(loss, steps)}, {evaluated(loss, steps)}});
  }

  [[nodiscard]] std::vector<size_t> stopped() const {
    std::vector<size_t> all;
    for (const StopVerdict& verdict : runs_to_stop(rule_, record_, runs_)) {
      all.push_back(verdict.run);
    }
    return all;
  }

  EarlyStop rule_{.after_fraction = 0.2, .margin = 0.1, .keep = 0.5, .per = {"size"}};
  SweepRecord record_;
  std::vector<RunSoFar> runs_;
};

TEST_F(EarlyStops, APointEndsIfEnoughOthersAreBetterByTheMargin) {
  add("a", 3.0, 30);
  add("b", 3.05, 30);
  add("c", 3.14, 30);  // 0.09 above the second best
  add("d", 3.16, 30);
  ASSERT_THAT(stopped(), ElementsAre(6, 7));
  const StopVerdict verdict = runs_to_stop(rule_, record_, runs_)[0];
  EXPECT_EQ(verdict.tokens, 300);
  EXPECT_NEAR(verdict.loss, 3.23, 1e-9);
  EXPECT_NEAR(verdict.better, 3.12, 1e-9);
  EXPECT_EQ(verdict.why,
            "at 300 tokens the validation_loss of d is 3.2300, and 2 of 4 points have 3.1200 or "
            "less, more than 0.1 below");
  rule_.margin = 0.05;
  EXPECT_THAT(stopped(), ElementsAre(4, 5, 6, 7));
  rule_.keep = 0.75;
  EXPECT_THAT(stopped(), IsEmpty());  // the third best is not 0.05 better than d
  rule_.margin = 0.01;
  EXPECT_THAT(stopped(), ElementsAre(6, 7));
}

TEST_F(EarlyStops, ComparesAtEqualTokens) {
  add("a", 3.0, 30);
  add("b", 3.05, 30);
  add("c", 3.3, 100);  // further, and by now lower than the others were at 300 tokens
  add("d", 2.0, 10);   // before `after`
  ASSERT_THAT(stopped(), ElementsAre(4, 5));
  EXPECT_EQ(runs_to_stop(rule_, record_, runs_)[0].tokens, 300);
  rule_ = {.after_tokens = 310, .margin = 0.1, .per = {}};
  EXPECT_THAT(stopped(), IsEmpty());
  rule_.after_tokens = 300;
  EXPECT_THAT(stopped(), ElementsAre(4, 5));
}

TEST_F(EarlyStops, WaitsForEnoughOthers) {
  add("a", 3.0, 30);
  add("b", 3.0, 10);
  add("c", 4.0, 30);
  add("d", 3.0, 0);
  EXPECT_THAT(stopped(), IsEmpty());  // two of four must be better; b is not there yet
  runs_[2].series = evaluated(3.0, 20);
  EXPECT_THAT(stopped(), ElementsAre(4, 5));
}

TEST_F(EarlyStops, PointsAreComparedWithTheirLike) {
  add("a", 3.0, 30);
  add("b", 3.0, 30);
  add("l", "l", {{evaluated(2.0, 30)}});
  add("m", "l", {{evaluated(2.5, 30)}});
  EXPECT_THAT(stopped(), ElementsAre(5));
  rule_.per.clear();
  EXPECT_THAT(stopped(), ElementsAre(0, 1, 2, 3));
}

TEST_F(EarlyStops, APointIsItsMeanAndEndsAsAWhole) {
  add("a", 3.0, 30);
  add("b", "s", {{evaluated(2.9, 30)}, {evaluated(3.3, 30)}});  // 3.1 on the mean
  EXPECT_THAT(stopped(), IsEmpty());
  runs_[2].series = evaluated(2.95, 30);
  EXPECT_THAT(stopped(), ElementsAre(2, 3));
  runs_[2].over = true;
  EXPECT_THAT(stopped(), ElementsAre(3));
  runs_[3].series = {};  // has not started: the other seed speaks for both
  EXPECT_THAT(stopped(), IsEmpty());
  runs_[2].series = evaluated(3.2, 30);
  EXPECT_THAT(stopped(), ElementsAre(3));
}

TEST_F(EarlyStops, NotFiniteIsWorstAndNeverBetter) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  add("a", 3.0, 30);
  add("b", nan, 30);
  EXPECT_THAT(stopped(), ElementsAre(2, 3));
  rule_.margin = 100;
  EXPECT_THAT(stopped(), ElementsAre(2, 3));
  runs_[0].series = runs_[1].series = evaluated(nan, 30);
  EXPECT_THAT(stopped(), IsEmpty());
}

// Ones that ended long ago cannot be better than a point further on, and still fill their places.
TEST_F(EarlyStops, NeverMoreThanTheirShareEnd) {
  add("a", 3.0, 30);
  add("b", 3.5, 30);
  add("c", 3.7, 30);
  rule_ = {.after_fraction = 0.2, .margin = 0.1, .keep = 0.3, .per = {}};
  EXPECT_THAT(stopped(), ElementsAre(2, 3, 4, 5));
  rule_.keep = 0.5;  // two must be better
  EXPECT_THAT(stopped(), ElementsAre(4, 5));
  add("d", 3.0, 30);
  EXPECT_THAT(stopped(), ElementsAre(2, 3, 4, 5));
  runs_[6].over = runs_[6].stopped = true;  // d was ended, by what is now known no longer bad
  ASSERT_THAT(stopped(), ElementsAre(4, 5, 7));
  EXPECT_EQ(runs_to_stop(rule_, record_, runs_)[2].why, "another run of its point was ended");
  runs_[4].over = runs_[4].stopped = true;
  runs_[5].over = runs_[5].stopped = true;
  EXPECT_THAT(stopped(), ElementsAre(7));
}

TEST_F(EarlyStops, TheBestNeverEnds) {
  add("a", 3.0, 30);
  add("b", 3.0, 30);
  rule_.margin = 0;
  EXPECT_THAT(stopped(), IsEmpty());
  record_.points.clear();
  record_.runs.clear();
  runs_.clear();
  add("alone", std::numeric_limits<double>::quiet_NaN(), 90);
  EXPECT_THAT(stopped(), IsEmpty());
}

TEST(RunLoss, OfStepsIsTheMeanOverTheLastTenth) {
  RunSeries series;
  for (int64_t step = 1; step <= 40; ++step) {
    StepReport report;
    report.step = step;
    report.tokens = 10 * step;
    report.loss = static_cast<double>(step);
    series.steps.push_back(report);
  }
  EXPECT_EQ(reached_tokens(series, LossKind::kLoss, kBatch), 400);
  EXPECT_EQ(loss_at(series, LossKind::kLoss, kBatch), 38.5);  // of steps 37 to 40
  EXPECT_EQ(loss_at(series, LossKind::kLoss, kBatch, 205), 19.5);
  EXPECT_EQ(loss_at(series, LossKind::kLoss, kBatch, 50), 5);
  EXPECT_EQ(loss_at(series, LossKind::kLoss, kBatch, 9), std::nullopt);
}

TEST(RunLoss, OfEvaluationsIsTheLastOverAllSources) {
  RunSeries series;
  const auto add = [&series](int64_t step, const char* source, double loss, bool looks_ahead) {
    EvalReport report;
    report.step = step;
    report.source = source;
    report.loss = loss;
    report.looks_ahead = looks_ahead;
    series.evals.push_back(report);
  };
  add(10, "a", 4, false);
  add(20, "a", 3, false);
  add(20, "b", 2, false);
  add(20, "a", 1, true);
  add(30, "a", 1, true);
  EXPECT_EQ(reached_tokens(series, LossKind::kValidationLoss, kBatch), 200);
  EXPECT_EQ(loss_at(series, LossKind::kValidationLoss, kBatch), 2.5);
  EXPECT_EQ(loss_at(series, LossKind::kValidationLoss, kBatch, 199), 4);
  EXPECT_EQ(loss_at(series, LossKind::kValidationLoss, kBatch, 99), std::nullopt);
}

}  // namespace
}  // namespace anabranch
