#include "monitoring/charts.h"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/xml.h"

namespace anabranch {

namespace {

using testing::HasSubstr;
using testing::Not;

TEST(Charts, LinesHaveATitleTheNewestValueAndALegend) {
  const std::string svg = line_chart(
      {"a", "Speed", "B"}, {{"up", {{1, 1000}, {2, 2500}}}, {"down", {{1, 3000}, {2, 500}}}});
  EXPECT_EQ(test::XmlCheck(svg).problem(), "");
  for (const char* text : {">Speed, kB<", ">2.5<", ">up<", ">down<", "s1 line"}) {
    EXPECT_THAT(svg, HasSubstr(text));
  }
}

TEST(Charts, NothingKnownIsSaid) {
  for (const std::string& svg : {line_chart({"a", "Speed", ""}, {{"", {}}}),
                                 stacked_chart({"a", "Speed", ""}, {{"x", {{1, 1}}}})}) {
    EXPECT_EQ(test::XmlCheck(svg).problem(), "");
    EXPECT_THAT(svg, HasSubstr("not known yet"));
  }
}

TEST(Charts, TakeWhateverARunMayHave) {
  for (const double value : {0.0, -1.0, 1e-12, 1e12, 1e300, 5.0}) {
    for (const char* unit : {"", "s"}) {
      const ChartText text{"a", "T", unit};
      EXPECT_EQ(test::XmlCheck(line_chart(text, {{"", {{7, value}}}})).problem(), "");
      EXPECT_EQ(test::XmlCheck(line_chart(text, {{"", {{7, value}, {8, value}}}})).problem(), "");
    }
  }
  EXPECT_THAT(line_chart({"a", "T", ""}, {{"", {{1, 1}, {2e6, 2}}}}), HasSubstr("step, thousands"));
}

TEST(Charts, AreasLieOnTopOfEachOther) {
  const std::string svg =
      stacked_chart({"a", "Time", "s"}, {{"x", {{1, 1}, {2, 1}}}, {"y", {{1, 2}, {2, 3}}}});
  EXPECT_EQ(test::XmlCheck(svg).problem(), "");
  EXPECT_THAT(svg, HasSubstr(">4<"));  // the newest sum
  EXPECT_THAT(svg, HasSubstr("s1 fill"));
}

TEST(Charts, SharesAreCellsByLayerAndPart) {
  const double unknown = std::numeric_limits<double>::quiet_NaN();
  const std::string svg = share_map({"a", "Load", ""}, "stream", {{0.25, 0.75}, {1, unknown}});
  EXPECT_EQ(test::XmlCheck(svg).problem(), "");
  EXPECT_THAT(svg, HasSubstr("layer 0, stream 1: 0.75"));
  EXPECT_THAT(svg, HasSubstr("layer 1, stream 0: 1"));
  EXPECT_THAT(svg, Not(HasSubstr("layer 1, stream 1")));
  EXPECT_THAT(svg, HasSubstr("fill-opacity=\"0.25\""));
}

TEST(Charts, NumbersAreShort) {
  EXPECT_EQ(short_number(12345), "12.3 k");
  EXPECT_EQ(short_number(0.25), "0.25");
  EXPECT_EQ(short_number(0.0125, "s"), "12.5 ms");
  EXPECT_EQ(short_number(3e9, "B"), "3 GB");
  EXPECT_EQ(short_number(0, "s"), "0 s");
  EXPECT_EQ(short_number(999.7), "1000");
  EXPECT_EQ(short_number(12e4, "tokens/s"), "120 k tokens/s");
  EXPECT_EQ(short_number(std::nan("")), "\u2013");
}

}  // namespace

}  // namespace anabranch
