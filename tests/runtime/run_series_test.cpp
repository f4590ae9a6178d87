#include "runtime/run_series.h"

#include <cmath>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "monitoring/json_lines.h"
#include "runtime/metrics_sink.h"
#include "tests/support/temp_dir.h"

namespace anabranch {
namespace {

using testing::ElementsAre;

StepReport step_report(int64_t step, double loss) {
  StepReport report;
  report.step = step;
  report.logged = true;
  report.tokens = 8 * step;
  report.loss = loss;
  report.flops_per_second = 3e9;
  return report;
}

EvalReport eval_report(int64_t step, double loss, bool looks_ahead = false) {
  EvalReport report;
  report.step = step;
  report.loss = loss;
  report.looks_ahead = looks_ahead;
  return report;
}

// Writes as a run does.
class RunSeriesTest : public testing::Test {
 protected:
  void SetUp() override { path_ = (dir_ / "metrics.jsonl").string(); }

  void write(const auto& f) const {
    Metrics metrics({}, {"all"}, {.layers = 2, .streams = 2});
    JsonLines lines(path_, [](const std::string&) {});
    RunHistory history({"all"});
    MetricsSink sink(metrics, history, lines);
    f(sink);
  }

  const test::TempDir dir_;
  std::string path_;
};

TEST_F(RunSeriesTest, ReadsWhatARunWrites) {
  write([](MetricsSink& sink) {
    StepReport report = step_report(1, 5.5);
    report.readings = {{Metric::kStreamLoad, 0, 1, 0.75}, {Metric::kEffectiveStreams, 1, 0, 1.5}};
    sink.step(report);
    sink.eval(eval_report(1, 5.25));
    sink.eval(eval_report(1, 4.0, true));
    SaveReport saved;
    saved.step = 1;
    saved.ok = true;
    saved.bytes = 7;
    sink.save(saved);
    sink.event("resumed", "from step 1");
  });
  const RunSeries series = read_series(path_, 9);
  ASSERT_EQ(series.steps.size(), 1U);
  EXPECT_EQ(series.last_step()->tokens, 8);
  EXPECT_EQ(series.last_step()->total_steps, 9);
  EXPECT_EQ(series.last_step()->flops_per_second, 3e9);
  ASSERT_EQ(series.evals.size(), 2U);
  EXPECT_EQ(series.last_eval()->loss, 5.25);
  EXPECT_EQ(series.last_eval(0, 9, true)->loss, 4.0);
  EXPECT_FALSE(series.last_eval(2).has_value());
  ASSERT_EQ(series.saves.size(), 1U);
  EXPECT_EQ(series.saves[0].bytes, 7);
  ASSERT_EQ(series.mixture.size(), 1U);
  const auto& load = series.mixture[0].figures.at("stream_load");
  EXPECT_TRUE(std::isnan(load[0][0]));
  EXPECT_EQ(load[0][1], 0.75);
  EXPECT_EQ(series.mixture[0].figures.at("effective_streams")[1][0], 1.5);
  EXPECT_EQ(series.odd_lines, 0);
}

TEST_F(RunSeriesTest, WhatWasDoneAgainStandsOnce) {
  write([](MetricsSink& sink) {
    for (int step = 1; step <= 4; ++step) {
      StepReport report = step_report(step, 10 - step);
      report.readings = {{Metric::kEffectiveStreams, 0, 0, double(step)}};
      sink.step(report);
      sink.eval(eval_report(step, step));
    }
  });
  write([](MetricsSink& sink) {
    sink.step(step_report(3, 1.0));
    sink.eval(eval_report(3, 0.5));
  });
  const RunSeries series = read_series(path_);
  std::vector<double> losses;
  for (const StepReport& report : series.steps) losses.push_back(report.loss);
  EXPECT_THAT(losses, ElementsAre(9, 8, 1));
  ASSERT_EQ(series.evals.size(), 3U);
  EXPECT_EQ(series.last_eval()->loss, 0.5);
  EXPECT_EQ(series.mixture.size(), 2U);
}

TEST_F(RunSeriesTest, OddAndHalfLinesAreLeftOut) {
  write([](MetricsSink& sink) { sink.step(step_report(1, 2)); });
  std::ofstream(path_, std::ios::app) << "{\"type\":\"other\"}\nnot JSON\n{\"type\":\"step\",\"st";
  const RunSeries series = read_series(path_);
  EXPECT_EQ(series.steps.size(), 1U);
  EXPECT_EQ(series.odd_lines, 2);
  EXPECT_THROW(read_series((dir_ / "none").string()), Error);
}

}  // namespace
}  // namespace anabranch
