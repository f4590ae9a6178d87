#include "runtime/metrics_sink.h"

#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/config/model_config.h"
#include "tests/support/temp_dir.h"

namespace anabranch {

namespace {

using testing::HasSubstr;
using testing::Not;

class MetricsSinkTest : public testing::Test {
 protected:
  // What the sink has written so far.
  std::string content() {
    lines_.flush();
    std::ifstream in(dir_ / "metrics.jsonl");
    return {std::istreambuf_iterator<char>(in), {}};
  }

  test::TempDir dir_;
  Metrics metrics_{Labels{}, {"all"}, {.layers = 3, .streams = 2, .experts = 0}};
  JsonLines lines_{(dir_ / "metrics.jsonl").string(), [](const std::string&) {}};
  RunHistory history_;
  MetricsSink sink_{metrics_, history_, lines_};
};

TEST_F(MetricsSinkTest, ReadingsAreSeriesAndOneLine) {
  StepReport report;
  report.step = 10;
  report.logged = true;
  report.readings = {{Metric::kAuxiliaryLoss, 0, 0, 0.5},    {Metric::kStreamLoad, 0, 1, 0.75},
                     {Metric::kStreamLoad, 0, 0, 0.25},      {Metric::kStreamLoad, 2, 1, 1},
                     {Metric::kEffectiveStreams, 2, 0, 1.5}, {Metric::kEffectiveStreams, 0, 0, 2}};
  sink_.step(report);
  const std::string text = content();
  EXPECT_THAT(text, HasSubstr(",\"auxiliary_loss\":0.5}\n"
                              "{\"type\":\"mixture\",\"step\":10,\"auxiliary_loss\":0.5,"
                              "\"stream_load\":[[0.25,0.75],[],[null,1]],"
                              "\"effective_streams\":[2,null,1.5]}\n"));
  EXPECT_EQ(metrics_.value(Metric::kAuxiliaryLoss), 0.5);
  EXPECT_EQ(metrics_.read(Metric::kStreamLoad).at(5).value, 1);
  EXPECT_TRUE(std::isnan(metrics_.read(Metric::kStreamLoad).at(2).value));
  EXPECT_EQ(metrics_.read(Metric::kEffectiveStreams).at(0).value, 2);
}

TEST_F(MetricsSinkTest, CountsTheTimeItTakes) {
  const auto spent = [&] { return metrics_.value(Metric::kRecordingSeconds); };
  EXPECT_EQ(spent(), 0);
  double before = spent();
  const auto has_grown = [&] { return std::exchange(before, spent()) < spent(); };
  sink_.step({});
  EXPECT_TRUE(has_grown());
  sink_.eval({});
  EXPECT_TRUE(has_grown());
  sink_.save({});
  EXPECT_TRUE(has_grown());
  sink_.event("kind", "text");
  EXPECT_TRUE(has_grown());
}

TEST_F(MetricsSinkTest, KeepsTheHistoryOfARun) {
  StepReport report;
  report.loss = 3;
  for (report.step = 1; report.step <= 2; ++report.step) sink_.step(report);
  EvalReport validation;
  validation.step = 2;
  validation.loss = 2.5;
  sink_.eval(validation);
  EXPECT_EQ(history_.course(Metric::kLoss).points.back(), (std::pair{2.0, 3.0}));
  ASSERT_EQ(history_.validations().size(), 1U);
  EXPECT_EQ(history_.validations()[0].points.back(), (std::pair{2.0, 2.5}));
}

TEST_F(MetricsSinkTest, AStepWithoutReadingsIsOneLine) {
  StepReport report;
  report.logged = true;
  sink_.step(report);
  EXPECT_THAT(content(), Not(HasSubstr("mixture")));
  EXPECT_THAT(content(), Not(HasSubstr("auxiliary_loss")));
}

TEST_F(MetricsSinkTest, FiguresOfGpusAreSpreadsAndSums) {
  Metrics metrics{Labels{}, {"all"}, {}, Metrics::kLabelLimit, true};
  MetricsSink sink{metrics, history_, lines_};
  StepReport report;
  report.logged = true;
  constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
  report.gpu.assign(kGpuFigures, {kUnknown, kUnknown, kUnknown, 0});
  report.gpu[0] = {0.25, 0.5, 1, 1.75};                   // utilisation
  report.gpu[kGpuSpreads + kGpuSums - 1] = {1, 1, 2, 3};  // critical errors
  report.gpu[kGpuSpreads + kGpuSums + 1] = {0, 0, 1, 2};  // held down by heat
  sink.step(report);
  EXPECT_EQ(metrics.value(Metric::kGpuUtilisation, "min"), 0.25);
  EXPECT_EQ(metrics.value(Metric::kGpuUtilisation, "max"), 1);
  EXPECT_TRUE(std::isnan(metrics.value(Metric::kGpuPower, "median")));
  EXPECT_EQ(metrics.value(Metric::kGpuXid), 3);
  EXPECT_EQ(metrics.value(Metric::kGpusThrottled, "thermal"), 2);
  EXPECT_EQ(metrics.value(Metric::kGpusThrottled, "power"), 0);
  EXPECT_THAT(content(), HasSubstr("\"gpu_utilisation_ratio_median\":0.5,"
                                   "\"gpu_power_watts_median\":null,"));
  report.gpu.clear();
  sink.step(report);
  EXPECT_EQ(content().find("gpu_"), content().rfind("gpu_utilisation"));
}

TEST_F(MetricsSinkTest, ALossThatSeesTheFutureIsNoHeadline) {
  EvalReport report{.step = 4, .looks_ahead = true, .source = "", .loss = 2, .perplexity = 7};
  sink_.eval(report);
  EXPECT_EQ(content(),
            "{\"type\":\"eval\",\"step\":4,\"looks_ahead\":true,\"source\":\"all\","
            "\"validation_loss_looking_ahead\":2,\"tokens\":0,\"seconds\":0}\n");
  EXPECT_EQ(metrics_.value(Metric::kValidationLossLookingAhead, "all"), 2);
  for (const Metric headline :
       {Metric::kValidationLoss, Metric::kValidationPerplexity, Metric::kBitsPerByte}) {
    EXPECT_TRUE(std::isnan(metrics_.value(headline, "all")));
  }
  report.looks_ahead = false;
  report.loss = 3;
  sink_.eval(report);
  EXPECT_EQ(metrics_.value(Metric::kValidationLoss, "all"), 3);
  EXPECT_EQ(metrics_.value(Metric::kValidationLossLookingAhead, "all"), 2);
}

TEST_F(MetricsSinkTest, WhatHoldsUpTrainingAddsUp) {
  sink_.save({.step = 10, .ok = true, .error = "", .stall_seconds = 0.5, .bytes = 100});
  EXPECT_EQ(metrics_.value(Metric::kCheckpointStep), 10);
  sink_.save({.step = 20, .ok = false, .error = "full", .stall_seconds = 0.25});
  EXPECT_EQ(metrics_.value(Metric::kCheckpointStep), 10) << "of the newest that is whole";
  EXPECT_EQ(metrics_.value(Metric::kCheckpointPauseTotal), 0.75);
  EXPECT_EQ(metrics_.value(Metric::kCheckpointFailures), 1);
  EvalReport report{.step = 4, .source = "", .loss = 2, .seconds = 3};
  sink_.eval(report);
  report.looks_ahead = true;
  sink_.eval(report);
  EXPECT_EQ(metrics_.value(Metric::kValidationTotal), 6);
}

TEST(PartCounts, FollowTheFamily) {
  ModelConfig model;
  model.layers = 6;
  model.cmollm.streams = 3;
  EXPECT_EQ(part_counts(model), PartCounts{});
  model.type = ModelType::kCmollm;
  EXPECT_EQ(part_counts(model), (PartCounts{6, 3, 0}));
  model.type = ModelType::kMoepMsit;
  EXPECT_EQ(part_counts(model), (PartCounts{6, 0, 4}));
  model.type = ModelType::kKappaMoe;
  EXPECT_EQ(part_counts(model), (PartCounts{6, 0, 8}));
}

}  // namespace

}  // namespace anabranch
