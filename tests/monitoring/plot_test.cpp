#include "monitoring/plot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "tests/support/xml.h"

namespace anabranch {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

TEST(RoundTicks, AreFewAndRound) {
  EXPECT_THAT(round_ticks(0, 1, 6), ElementsAre(0, 0.2, 0.4, 0.6000000000000001, 0.8, 1));
  EXPECT_THAT(round_ticks(-4.75, 4.75, 8), ElementsAre(-4, -2, 0, 2, 4));
  EXPECT_THAT(round_ticks(3, 1003, 5), ElementsAre(200, 400, 600, 800, 1000));
  for (const double max : {1e-6, 0.3, 7.0, 99.0, 1e9}) {
    for (const int64_t most : {2, 5, 8}) {
      const auto ticks = round_ticks(-max / 3, max, most);
      EXPECT_LE(std::ssize(ticks), most);
      EXPECT_GE(std::ssize(ticks), 1);
    }
  }
  EXPECT_THROW(round_ticks(1, 1, 5), Error);
  EXPECT_EQ(tick_text(0.6000000000000001), "0.6");
  EXPECT_EQ(tick_text(-4), "-4");
  EXPECT_EQ(tick_text(-0.0), "0");
}

TEST(Panel, PlacesMarksByItsAxes) {
  Svg svg(300, 200, "t");
  Panel panel(svg, "p", "title & all", {50, 30, 200, 100}, {"x", 0, 10}, {"y", -1, 1});
  const PlotPoint middle = panel.at({5, 0}), corner = panel.at({0, 1});
  EXPECT_DOUBLE_EQ(middle.x, 150);
  EXPECT_DOUBLE_EQ(middle.y, 80);
  EXPECT_DOUBLE_EQ(corner.x, 50);
  EXPECT_DOUBLE_EQ(corner.y, 30);
  panel.line({{0, -1}, {10, 1}}, "s0 line");
  panel.dots({{5, 0}}, "s1 dots");
  panel.crosses({{5, 0}}, "s2 crosses");
  panel.areas({{0, 0}, {5, 1}}, "s3 shade");
  panel.band({{0, 1}, {5, 1}}, {{0, 0}, {5, 0}}, "s5 shade");
  panel.line({}, "s4 line");
  legend(svg, {50, 180}, {{"line", "s0 line", "a"}, {"shade", "s3 shade", "b"}});
  const std::string text = svg.text();
  EXPECT_EQ(test::xml_problem(text), "");
  const std::string clip = "clip-path=\"url(#p)\" d=\"";
  EXPECT_THAT(text, HasSubstr("<path class=\"s0 line\" " + clip + "M50 130L250 30\"/>"));
  EXPECT_THAT(text, HasSubstr("<path class=\"s1 dots\" " + clip + "M150 80h0\"/>"));
  EXPECT_THAT(text, HasSubstr(clip + "M147.5 77.5l5 5m-5 0l5 -5\"/>"));
  EXPECT_THAT(text, HasSubstr(clip + "M50 80H150V30H50Z\"/>"));
  EXPECT_THAT(text, HasSubstr(clip + "M50 30L150 30L150 80L50 80Z\"/>"));
  EXPECT_THAT(text, HasSubstr(">title &amp; all</text>"));
  EXPECT_THAT(text, Not(HasSubstr("class=\"s4 line\"")));
  EXPECT_THROW(legend(svg, {0, 0}, {{"stars", "s0", "a"}}), Error);
}

PlotGrid grid_of(int64_t columns, int64_t rows, const std::vector<double>& values) {
  return {{"x", 0, static_cast<double>(columns - 1)},
          {"y", 0, static_cast<double>(rows - 1)},
          columns,
          rows,
          values};
}

std::vector<double> flat(const std::vector<PlotPoint>& points) {
  std::vector<double> all;
  for (const PlotPoint& p : points) {
    all.push_back(p.x);
    all.push_back(p.y);
  }
  return all;
}

TEST(ZeroContours, FollowAPlaneAcrossTheGrid) {
  // x - 0.25: one line from the lower to the upper border.
  const auto lines = zero_contours(grid_of(3, 3, {-1, 3, 7, -1, 3, 7, -1, 3, 7}));
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_THAT(flat(lines[0]), ElementsAre(0.25, 0, 0.25, 1, 0.25, 2));
}

TEST(ZeroContours, CloseAroundAPeak) {
  const auto lines = zero_contours(grid_of(3, 3, {-1, -1, -1, -1, 1, -1, -1, -1, -1}));
  ASSERT_EQ(lines.size(), 1U);
  ASSERT_EQ(lines[0].size(), 5U);
  EXPECT_EQ(flat({lines[0].front()}), flat({lines[0].back()}));
  for (const PlotPoint& p : lines[0]) EXPECT_DOUBLE_EQ(std::abs(p.x - 1) + std::abs(p.y - 1), 0.5);
}

TEST(ZeroContours, TheMiddleDecidesASaddle) {
  // Above at the lower left and the upper right.
  const auto joined = zero_contours(grid_of(2, 2, {3, -1, -1, 3}));
  ASSERT_EQ(joined.size(), 2U);
  // Around the lower right corner: from the lower edge to the right one.
  EXPECT_THAT(flat(joined[0]), ElementsAre(0.75, 0, 1, 0.25));
  const auto apart = zero_contours(grid_of(2, 2, {1, -3, -3, 1}));
  ASSERT_EQ(apart.size(), 2U);
  // Around the lower left corner.
  EXPECT_THAT(flat(apart[0]), ElementsAre(0.25, 0, 0, 0.25));
}

TEST(ZeroContours, RefuseAGridThatLacksValues) {
  EXPECT_THROW(zero_contours(grid_of(2, 2, {1, 2, 3})), Error);
  EXPECT_TRUE(zero_contours(grid_of(2, 2, {1, 2, 3, 4})).empty());
}

TEST(PositiveAreas, AreRunsOfCells) {
  EXPECT_THAT(flat(positive_areas(grid_of(4, 2, {-1, 1, 1, -1, 1, -1, -1, 1}))),
              ElementsAre(0.5, -0.5, 2.5, 0.5, -0.5, 0.5, 0.5, 1.5, 2.5, 0.5, 3.5, 1.5));
}

}  // namespace
}  // namespace anabranch
