#include "runtime/report/report.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "runtime/report/report_files.h"
#include "runtime/report/report_tables.h"
#include "tests/runtime/report/made_sweep.h"
#include "tests/runtime/sweep/sweeps.h"
#include "tests/support/tolerance.h"

namespace anabranch {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr double kNear = test::kStatistics.absolute;

// Dense at 4.00, 4.02, 4.04; two streams at 3.98, 4.01, 4.01, and their control
// at 3.99, 4.00, 4.05; four streams at 3.95, 3.96, 3.97.
class SweepReportTest : public testing::Test {
 protected:
  SweepReportTest() {
    sweep_.add("dense", "dense", {{"size", "s"}}, 100, {1, 2, 3});
    sweep_.add("mix-n2", "cmollm", {{"size", "s"}, {"model.streams", "2"}}, 200, {1, 2, 3});
    sweep_.add("mix-n4", "cmollm", {{"size", "s"}, {"model.streams", "4"}}, 300, {1, 2, 3});
    sweep_.add("wide-n2", "widened", {{"size", "s"}, {"n", "2"}}, 220, {1, 2, 3}, "mix-n2");
    sweep_.write_record();
    finish("dense", {4.00, 4.02, 4.04});
    finish("mix-n2", {3.98, 4.01, 4.01});
    finish("mix-n4", {3.95, 3.96, 3.97});
    finish("wide-n2", {3.99, 4.00, 4.05});
  }

  void finish(const std::string& point, const std::vector<double>& losses) const {
    for (size_t s = 0; s < losses.size(); ++s) {
      sweep_.finish(point + "-s" + std::to_string(s + 1), losses[s]);
    }
  }

  // Replaces what a run has written.
  template <class F>
  void rewrite(const std::string& id, F&& tell) const {
    std::filesystem::remove_all(sweep_.run(id));
    sweep_.write(id, tell);
  }

  [[nodiscard]] SweepReport report(const std::string& baseline = "") const {
    return make_report(sweep_.path(), baseline);
  }

  [[nodiscard]] std::string text() const {
    const SweepReport made = report();
    return report_markdown(made, {}, size_series(made));
  }

  test::MadeSweep sweep_;
};

TEST_F(SweepReportTest, MeansOverSeeds) {
  const SweepReport made = report();
  const PointResult& dense = made.points[0];
  EXPECT_EQ(dense.runs.size(), 3U);
  EXPECT_NEAR(dense.at(ReportFigure::kValidationLoss).mean, 4.02, kNear);
  EXPECT_NEAR(dense.at(ReportFigure::kValidationLoss).deviation, 0.02, kNear);
  EXPECT_NEAR(dense.at(ReportFigure::kPerplexity).mean,
              (std::exp(4.00) + std::exp(4.02) + std::exp(4.04)) / 3, kNear);
  EXPECT_NEAR(dense.at(ReportFigure::kBitsPerByte).mean, 2.01, kNear);
  EXPECT_EQ(dense.at(ReportFigure::kTokensPerSecond).mean, 4);
  EXPECT_EQ(dense.at(ReportFigure::kSeconds).mean, 20);
  EXPECT_EQ(dense.at(ReportFigure::kFlops).mean, 80 * 6 * 100);
  EXPECT_EQ(dense.at(ReportFigure::kLookingAhead).count, 0);
}

// Differences of mix-n2 from its control: -0.01, 0.01, -0.04; from dense: -0.02, -0.01, -0.03.
TEST_F(SweepReportTest, DifferencesAreSeedBySeed) {
  const SweepReport made = report();
  ASSERT_EQ(made.comparisons.size(), 4U);
  const Comparison& control = made.comparisons[0];
  EXPECT_EQ(control.why, "matched compute");
  EXPECT_EQ(made.record.points[control.baseline].id, "wide-n2");
  EXPECT_NEAR(control.differences.mean, -0.04 / 3, kNear);
  const Comparison& dense = made.comparisons[1];
  EXPECT_EQ(dense.why, "dense");
  EXPECT_NEAR(dense.differences.mean, -0.02, kNear);
  EXPECT_NEAR(dense.differences.deviation, 0.01, kNear);
  EXPECT_NEAR(dense.interval.low, -0.0448413771, kNear);
  EXPECT_NEAR(dense.interval.high, 0.0048413771, kNear);
  EXPECT_EQ(dense.needed, 5);
  EXPECT_EQ(made.record.points[made.comparisons[3].point].id, "wide-n2");
}

TEST_F(SweepReportTest, AnyPointOrFamilyMayBeTheBaseline) {
  EXPECT_EQ(report("mix-n2").comparisons.size(), 3U);
  const SweepReport by_family = report("widened");  // others have not its N
  ASSERT_EQ(by_family.comparisons.size(), 1U);
  EXPECT_NEAR(by_family.comparisons[0].differences.mean, -0.04 / 3, kNear);
  try {
    static_cast<void>(report("mix-n3"));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.fault(), Fault::kUsage);
    EXPECT_THAT(error.what(), HasSubstr("nearest is mix-n2"));
  }
}

TEST_F(SweepReportTest, RunsThatAreNotCompleteAreListedAndInNoMean) {
  rewrite("dense-s1", [](MetricsSink& sink) { sink.step(test::MadeSweep::step_report(4, 9)); });
  sweep_.attempts(
      "dense-s1",
      R"({"event":"begin","job":"7","attempt":1,"time":"","hosts":"","ranks":1,"step":0})"
      "\n"
      R"({"event":"end","job":"7","attempt":1,"time":"","code":70,"step":0,)"
      R"("next":"stop","why":"an internal fault"})"
      "\n");
  rewrite("dense-s2", [](MetricsSink& sink) {
    sink.step(test::MadeSweep::step_report(10, 9));
    sink.eval(test::MadeSweep::eval_report(10, std::nan("")));
  });
  std::filesystem::remove_all(sweep_.run("mix-n2-s3"));
  rewrite("wide-n2-s1", [](MetricsSink& sink) {
    sink.step(test::MadeSweep::step_report(10, 4));
    sink.eval(test::MadeSweep::eval_report(5, 4.5));
    sink.eval(test::MadeSweep::eval_report(10, 4, true));
  });
  const SweepReport made = report();
  std::vector<std::string> why;
  for (const RunResult& run : made.runs) {
    if (!run.counts()) why.push_back(run.run.id + ": " + run.left_out);
  }
  EXPECT_THAT(why, ElementsAre("dense-s1: failed at step 4 of 10, exit code 70: an internal fault",
                               "dense-s2: its last validation loss is not a number",
                               "mix-n2-s3: waiting", HasSubstr("the loss it has looks ahead")));
  EXPECT_EQ(made.points[0].runs.size(), 1U);
  EXPECT_EQ(made.points[0].at(ReportFigure::kValidationLoss).mean, 4.04);
  // Dense has seed 3 alone and mix-n2 has 1 and 2: no common seed, no difference.
  for (const Comparison& c : made.comparisons) {
    EXPECT_FALSE(c.point == 1 && c.baseline == 0);
    EXPECT_EQ(c.differences.count, 1);
  }
  const std::string page = text();
  EXPECT_THAT(page, HasSubstr("12 runs, of which 8 count; 4 are left out and listed."));
  EXPECT_THAT(page, HasSubstr("| dense-s2"));
  EXPECT_THAT(page, HasSubstr("4.0400 (1 of 3)"));
}

TEST_F(SweepReportTest, OneSeedHasNoInterval) {
  for (const char* id : {"dense-s2", "dense-s3"}) std::filesystem::remove_all(sweep_.run(id));
  const SweepReport made = report();
  const Comparison& dense = made.comparisons[1];
  EXPECT_EQ(dense.differences.count, 1);
  EXPECT_TRUE(std::isnan(dense.interval.low));
  EXPECT_EQ(dense.needed, 0);
  EXPECT_THAT(text(), HasSubstr(" -0.0200 |"));
}

TEST_F(SweepReportTest, LossesThatLookAheadStandApart) {
  EXPECT_THAT(text(), Not(HasSubstr("looking ahead")));
  sweep_.write("mix-n2-s1",
               [](MetricsSink& sink) { sink.eval(test::MadeSweep::eval_report(10, 3.0, true)); });
  const SweepReport made = report();
  EXPECT_EQ(made.points[1].at(ReportFigure::kLookingAhead).mean, 3.0);
  EXPECT_NEAR(made.points[1].at(ReportFigure::kValidationLoss).mean, 4.0, kNear);
  EXPECT_THAT(text(), HasSubstr("loss looking ahead (no headline)"));
}

TEST_F(SweepReportTest, TablesHaveThePapersShape) {
  const std::string page = text();
  EXPECT_THAT(page, HasSubstr("## validation loss by N\n"));
  for (const char* column : {" no N |", " N 2 |", " N 4 |"}) EXPECT_THAT(page, HasSubstr(column));
  EXPECT_THAT(page, HasSubstr("| cmollm "));
  EXPECT_THAT(page, HasSubstr("**4.0000 \u00b1 0.0173 \u00b7 200**"));
  EXPECT_THAT(page, HasSubstr("4.0133 \u00b1 0.0321 \u00b7 220"));
}

TEST_F(SweepReportTest, FilesSayTheSame) {
  sweep_.finish("dense-s4", 1);  // none of the sweep's
  const SweepReport made = report();
  const auto json = nlohmann::json::parse(report_json(made, size_series(made)));
  EXPECT_NEAR(json["points"][0]["validation_loss"]["sd"].get<double>(), 0.02, kNear);
  EXPECT_TRUE(json["points"][0]["validation_loss_looking_ahead"]["mean"].is_null());
  EXPECT_EQ(json["points"][0]["runs"].size(), 3U);
  EXPECT_EQ(json["differences"][1]["seeds_needed"], 5);
  const std::string csv = report_csv(made);
  EXPECT_EQ(std::ranges::count(csv, '\n'), 1 + 12 + 4);
  EXPECT_THAT(csv, HasSubstr("\nrun,dense,dense-s1,1,"));
  EXPECT_THAT(csv, HasSubstr("\npoint,dense,,,,,3,3,dense,"));
}

TEST(SweepAxesTest, KeysThatFollowFromOthersAreNone) {
  const auto axes_of = [](const char* name) {
    return sweep_axes(record_of(test::tree_sweep(name), {}));
  };
  EXPECT_THAT(axes_of("cmollm").names, ElementsAre("family", "size", "variant", "N", "form"));
  EXPECT_THAT(axes_of("kappa").names, ElementsAre("family", "form", "depth"));
}

TEST(SweepAxesTest, TablesOfThePapersSweeps) {
  const auto pivots_of = [](const char* name) {
    const SweepRecord record = record_of(test::tree_sweep(name), {});
    return make_pivots(record, sweep_axes(record));
  };
  const std::vector<Pivot> cmollm = pivots_of("cmollm");
  ASSERT_EQ(cmollm.size(), 3U);
  EXPECT_EQ(cmollm[0].title, "size 85m");
  EXPECT_THAT(cmollm[0].columns, ElementsAre("", "1", "2", "4", "8"));
  std::vector<std::string> rows;
  for (const Pivot::Row& row : cmollm[0].rows) rows.push_back(row.label);
  EXPECT_THAT(rows, ElementsAre("dense", "cmollm linear", "cmollm simple", "cmollm context_aware",
                                "cmollm multi_head", "cmollm adaptive", "widened linear",
                                "widened simple", "widened context_aware", "widened multi_head",
                                "widened adaptive", "parascale", "altup", "altup-recycled"));
  const std::vector<Pivot> kappa = pivots_of("kappa");
  ASSERT_EQ(kappa.size(), 2U);
  EXPECT_EQ(kappa[1].title, "family sandwich");
  EXPECT_THAT(kappa[1].columns, ElementsAre("16", "20", "24", "28"));
  const std::vector<Pivot> moep = pivots_of("moep");
  ASSERT_EQ(moep.size(), 1U);
  EXPECT_EQ(moep[0].rows.size(), 18U);
  for (const auto& pivots : {cmollm, kappa, moep}) {
    for (const Pivot& pivot : pivots) {
      for (const Pivot::Row& row : pivot.rows) {
        for (const auto& cell : row.cells) EXPECT_LE(cell.size(), 1U);
      }
    }
  }
}

TEST(SweepAxesTest, RowsAndColumnsMayBeChosen) {
  const SweepRecord record = record_of(test::tree_sweep("cmollm"), {});
  const SweepAxes axes = sweep_axes(record);
  const std::vector<Pivot> pivots =
      make_pivots(record, axes, {.rows = {"family", "variant", "form"}, .columns = "size"});
  EXPECT_EQ(pivots.size(), 5U);  // by N
  EXPECT_THAT(pivots[0].columns, ElementsAre("85m", "350m", "760m"));
  EXPECT_THROW(make_pivots(record, axes, {.rows = {}, .columns = "sizes"}), Error);
}

}  // namespace
}  // namespace anabranch
