#include "monitoring/svg.h"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "tests/support/xml.h"

namespace anabranch {
namespace {

using test::xml_problem;
using testing::HasSubstr;

TEST(XmlCheck, SeesWhatIsNotWellFormed) {
  EXPECT_EQ(xml_problem("<a x=\"1\"><b/>t &amp; u</a>\n"), "");
  for (const char* text :
       {"", "<a>", "<a></b>", "</a>", "<a/><b/>", "<a x=1/>", "<a x=\"1\" x=\"2\"/>", "<a>&</a>",
        "<a>&x;</a>", "<a>></a>", "<a x=\"<\"/>", "t<a/>", "<a x=\"1/>", "<1/>", "<a>\x01</a>"}) {
    EXPECT_NE(xml_problem(text), "") << text;
  }
}

TEST(Svg, EscapesAndCloses) {
  Svg svg(20, 10.5, "a < b & \"c\"");
  svg.open("g", {{"class", "x\"<>&"}});
  svg.add("text", {{"x", svg_number(1.5)}}, std::string("1 > 0 \x01 \n d"));
  svg.close();
  const std::string text = svg.text();
  EXPECT_EQ(xml_problem(text), "");
  EXPECT_THAT(text, HasSubstr("<title>a &lt; b &amp; &quot;c&quot;</title>"));
  EXPECT_THAT(text,
              HasSubstr("<g class=\"x&quot;&lt;&gt;&amp;\">\n<text x=\"1.5\">1 &gt; 0   \n d"));
  EXPECT_THAT(text, HasSubstr("width=\"20\" height=\"10.5\" viewBox=\"0 0 20 10.5\""));
}

TEST(Svg, HasColoursForLightAndForDark) {
  const std::string text = Svg(1, 1, "t").text();
  const size_t dark = text.find("@media (prefers-color-scheme:dark){");
  ASSERT_NE(dark, std::string::npos);
  for (int64_t i = 0; i < Svg::kSeries; ++i) {
    const std::string rule = join(".s", i, "{color:");
    const size_t first = text.find(rule), second = text.find(rule, dark);
    EXPECT_LT(first, dark);
    ASSERT_NE(second, std::string::npos);
    EXPECT_NE(text.substr(first, rule.size() + 7), text.substr(second, rule.size() + 7));
  }
}

TEST(Svg, RefusesElementsThatDoNotMatch) {
  Svg svg(1, 1, "t");
  EXPECT_THROW(svg.close(), Error);
  svg.open("g", {});
  EXPECT_THROW((void)svg.text(), Error);
}

TEST(Svg, NumbersAreShort) {
  EXPECT_EQ(svg_number(3), "3");
  EXPECT_EQ(svg_number(0), "0");
  EXPECT_EQ(svg_number(100), "100");
  EXPECT_EQ(svg_number(-0.001), "0");
  EXPECT_EQ(svg_number(2.125), "2.12");
  EXPECT_EQ(svg_number(-1.5), "-1.5");
  EXPECT_EQ(svg_number(1e20), "100000000000000000000");
  EXPECT_THROW(svg_number(std::nan("")), Error);
  EXPECT_THROW(svg_number(std::numeric_limits<double>::infinity()), Error);
}

}  // namespace
}  // namespace anabranch
