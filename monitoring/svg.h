// Drawings as SVG text, for plots: they need no library, read in light and in dark, and compare in
// version control.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace anabranch {

// A drawing in the making, in pixels from its upper left corner. Colours come from classes of its
// style sheet, which has a light and a dark theme:
//
//   paper             the ground                  (fill)
//   ink, muted        text                        (fill)
//   grid, axis, rim   lines                       (stroke)
//   s0 ... s5         a series, as currentColor, with one of:
//     fill, line, dots, crosses, shade            what is drawn of it
class Svg {
 public:
  using Attributes = std::vector<std::pair<std::string_view, std::string>>;

  static constexpr int64_t kSeries = 6;

  // title  what a screen reader says of it
  Svg(double width, double height, std::string_view title);

  // An element without others in it; text, titles and attributes may hold any UTF-8.
  void add(std::string_view element, const Attributes& attributes, std::string_view text = {});

  // An element that holds what is added until close(). close() throws Error if none is open.
  void open(std::string_view element, const Attributes& attributes);
  void close();

  // The document; throws Error if an element is open.
  [[nodiscard]] std::string text() const;

 private:
  void start(std::string_view element, const Attributes& attributes);

  double width_, height_;
  std::string body_;
  std::vector<std::string> open_;
};

// Text for an element or an attribute of XML or HTML: what has a meaning there is escaped, and
// control characters that XML cannot hold become spaces.
std::string xml_text(std::string_view text);

// A coordinate: two digits after the point at most, no exponent. Throws Error if it is not finite.
std::string svg_number(double value);

// The classes of series `i` and what is drawn of it: svg_series(1, "line") is "s1 line".
std::string svg_series(int64_t series, std::string_view mark);

}  // namespace anabranch
