// A report's page, plots and files.
#include "runtime/report/report_page.h"

#include <fstream>
#include <set>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "runtime/report/paper_figures.h"
#include "runtime/report/report_plots.h"
#include "runtime/report/write_report.h"
#include "tests/runtime/report/made_sweep.h"
#include "tests/support/tolerance.h"
#include "tests/support/xml.h"

namespace anabranch {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

std::string read(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

// Without its first line, which XML does not have.
std::string html_problem(const std::string& page) {
  const std::string type = "<!DOCTYPE html>\n";
  if (!page.starts_with(type)) return "no document type";
  return test::xml_problem(page.substr(type.size()));
}

// Three sizes of a mixture of two streams, two seeds each, and what its gates do.
class SweepPageTest : public testing::Test {
 protected:
  SweepPageTest() {
    const std::vector<std::pair<std::string, int64_t>> sizes{{"s", 100}, {"m", 400}, {"l", 1600}};
    for (const auto& [size, parameters] : sizes) {
      sweep_.add(size + "-n2", "<mix & match>", {{"size", size}, {"model.streams", "2"}},
                 parameters, {1, 2});
      sweep_.add(size + "-n4", "<mix & match>", {{"size", size}, {"model.streams", "4"}},
                 2 * parameters, {1, 2});
    }
    sweep_.write_record();
    for (const auto& [size, parameters] : sizes) {
      for (const int seed : {1, 2}) {
        const double loss = 1 + 10 / std::sqrt(static_cast<double>(parameters)) + 0.01 * seed;
        write(size + "-n2-s" + std::to_string(seed), loss, 0.1 * seed);
        write(size + "-n4-s" + std::to_string(seed), loss - 0.1, 0.1 * seed);
      }
    }
  }

  void write(const std::string& id, double loss, double share) const {
    sweep_.write(id, [&](MetricsSink& sink) {
      for (int64_t step = 1; step <= test::MadeSweep::kSteps; ++step) {
        StepReport report = test::MadeSweep::step_report(step, loss);
        for (const int layer : {1, 2}) {  // the first has no mixture
          report.readings.push_back({Metric::kStreamLoad, layer, 0, share});
          report.readings.push_back({Metric::kStreamLoad, layer, 1, 1 - share});
          report.readings.push_back({Metric::kKappaLow, layer, 0, 0.5});
          report.readings.push_back({Metric::kKappaMedian, layer, 0, 1});
          report.readings.push_back(
              {Metric::kKappaHigh, layer, 0, 1.0 + static_cast<double>(step)});
        }
        sink.step(report);
      }
      sink.eval(test::MadeSweep::eval_report(test::MadeSweep::kSteps, loss));
    });
  }

  [[nodiscard]] SweepReport report() const { return make_report(sweep_.path()); }

  test::MadeSweep sweep_;
};

TEST_F(SweepPageTest, IsWellFormedAndAloneAndHasAll) {
  const SweepReport made = report();
  const std::filesystem::path out = std::filesystem::path(sweep_.path()) / "out";
  const auto series = size_series(made);
  write_report(made, {}, series, out.string(), true);
  const std::string page = read(out / "report.html");
  EXPECT_EQ(html_problem(page), "");
  for (const char* outside : {"http", "src=", "<script", "@import", "url(\"", "href=\"/"}) {
    EXPECT_THAT(page, Not(HasSubstr(outside)));
  }
  for (const char* part : {"&lt;mix &amp; match&gt;", "viewBox", "prefers-color-scheme:dark",
                           "@media print", "width=device-width", "scaling laws", "s-n2: kappa"}) {
    EXPECT_THAT(page, HasSubstr(part));
  }
  // Ids of clip paths are global in a page.
  std::set<std::string> ids;
  for (size_t at = page.find(" id=\""); at != std::string::npos; at = page.find(" id=\"", at + 1)) {
    EXPECT_TRUE(ids.insert(page.substr(at, page.find('"', at + 5) - at)).second)
        << page.substr(at, 40);
  }
  EXPECT_EQ(read(out / "report.md"), report_markdown(made, {}, series));
  EXPECT_THAT(read(out / "report.csv"), HasSubstr("row,point,run,seed"));
  EXPECT_EQ(test::xml_problem(read(out / "figures" / "s-n2-gate-weights-layers.svg")), "");
  EXPECT_EQ(test::xml_problem(read(out / "figures" / "loss-against-N-1.svg")), "");
}

TEST_F(SweepPageTest, EarlierFiguresAreReplaced) {
  const std::filesystem::path out = std::filesystem::path(sweep_.path()) / "out";
  std::filesystem::create_directories(out / "figures");
  std::ofstream(out / "figures" / "old.svg") << "x";
  std::ofstream(out / "figures" / "notes.txt") << "x";
  write_report(report(), {}, {}, out.string(), true);
  EXPECT_FALSE(std::filesystem::exists(out / "figures" / "old.svg"));
  EXPECT_TRUE(std::filesystem::exists(out / "figures" / "notes.txt"));
}

// Ten steps of a curve of a hundred parts: each is its own; seeds are 0.01 apart.
TEST_F(SweepPageTest, CurvesAreMeansWithTheirRange) {
  const LossCurve curve = loss_curve(report(), 0);
  ASSERT_EQ(curve.mean.size(), 10U);
  const double near = test::kStatistics.absolute;
  EXPECT_NEAR(curve.mean[9], 2.015 + 0.1, near);
  EXPECT_NEAR(curve.low[9], 2.01 + 0.1, near);
  EXPECT_NEAR(curve.high[9], 2.02 + 0.1, near);
  EXPECT_EQ(curve.tokens[9], 80);
  EXPECT_EQ(curve.flops[9], 80 * 6 * 100);
  EXPECT_EQ(curve.seconds[9], 20);
}

TEST_F(SweepPageTest, FiguresAreMeansOverSeeds) {
  const SweepReport made = report();
  const MixtureFigure load = mixture_figure(made, 0, "stream_load");
  EXPECT_EQ(load.steps.size(), 10U);
  EXPECT_THAT(load.layers(), ElementsAre(1, 2));
  const double near = test::kStatistics.absolute;
  EXPECT_NEAR(load.mean[9][1][0], 0.15, near);
  EXPECT_NEAR(load.low[9][1][0], 0.1, near);
  EXPECT_NEAR(load.high[9][1][0], 0.2, near);
  EXPECT_TRUE(mixture_figure(made, 0, "induced_bias_low").steps.empty());
  std::vector<std::string> names;
  for (const NamedDrawing& drawing : paper_figures(made)) {
    if (drawing.name.starts_with("s-n2-")) names.push_back(drawing.name);
  }
  EXPECT_THAT(names, ElementsAre("s-n2-gate-weights-training", "s-n2-gate-weights-layers",
                                 "s-n2-kappa-training", "s-n2-kappa-layers"));
}

// Sizes 100, 400, 1600 have 1 + 10 N^-1/2, and twice the size 0.1 less.
TEST_F(SweepPageTest, LawsAreOverSizesAndOverStreamsToo) {
  const std::vector<SizeSeries> series = size_series(report());
  ASSERT_EQ(series.size(), 3U);
  EXPECT_EQ(series[0].label, "<mix & match> 2");
  EXPECT_EQ(series[0].over, "size");
  EXPECT_EQ(series[0].law.runs, 6);
  EXPECT_NEAR(series[0].law.exponent.value, 0.5, test::kFits.absolute);
  EXPECT_NEAR(series[0].law.floor.value, 1.015, test::kFits.absolute);
  EXPECT_EQ(series[2].over, "size, N");
  EXPECT_EQ(series[2].points.size(), 6U);
  EXPECT_EQ(law_plots(series, LawSize::kParameters).size(), 3U);
  const std::vector<SizeSeries> flops = size_series(report(), LawSize::kFlops);
  EXPECT_EQ(flops[0].runs[0].size, 6.0 * 100 * 80);
}

TEST(LinePlots, TakeAnyNumbers) {
  const double none = std::numeric_limits<double>::quiet_NaN();
  LinePlot plot{"p", "a <title>", "x", "y", {}};
  EXPECT_EQ(test::xml_problem(draw_lines(plot)), "");
  plot.series = {{.name = "one", .x = {5}, .y = {2}, .low = {2}, .high = {2}},
                 {.name = "none", .x = {none, 1}, .y = {1, none}},
                 {.name = "large", .x = {0, 2e12}, .y = {1e-9, 1e9}}};
  for (int i = 0; i < 20; ++i) plot.series.push_back({.name = "more & more", .x = {1}, .y = {1}});
  const std::string drawn = draw_lines(plot);
  EXPECT_EQ(test::xml_problem(drawn), "");
  EXPECT_THAT(drawn, HasSubstr("x, G"));
  EXPECT_EQ(file_word("a/b c.1"), "a_b_c_1");
  // What is above the highest leaves the plot, and does not stretch it: 0 to 1 and some air.
  plot.highest = 1;
  plot.series = {{.name = "", .x = {0, 1}, .y = {90, 0}, .low = {80, 0}, .high = {95, 0}}};
  EXPECT_THAT(draw_lines(plot), Not(HasSubstr(">20<")));
  plot.series = {{.name = "uneven", .x = {1, 2}, .y = {1}}};
  EXPECT_THROW(draw_lines(plot), Error);
}

}  // namespace
}  // namespace anabranch
