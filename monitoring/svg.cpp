#include "monitoring/svg.h"

#include <array>
#include <cmath>
#include <cstdio>

#include "core/base/error.h"

namespace anabranch {
namespace {

struct Theme {
  const char *paper, *ink, *muted, *grid, *axis;
  std::array<const char*, Svg::kSeries> series;
};

constexpr Theme kLight{
    "#fcfcfb", "#0b0b0b", "#52514e",
    "#e6e5df", "#a9a8a1", {"#2a78d6", "#d95926", "#12805a", "#a86f00", "#8a4fc4", "#c2366e"}};
constexpr Theme kDark{
    "#1a1a19", "#ffffff", "#c3c2b7",
    "#33332f", "#6d6c66", {"#5aa2f0", "#f08a5d", "#3fbf8f", "#e0aa3e", "#b98be8", "#ee7aa5"}};

constexpr const char* kForms =
    "text{font:12px system-ui,sans-serif}.title{font-weight:600;font-size:13px}"
    ".small{font-size:11px}.grid,.axis{stroke-width:1;fill:none}"
    ".fill{fill:currentColor}.shade{fill:currentColor;fill-opacity:.13}"
    ".line{stroke:currentColor;stroke-width:2;fill:none;stroke-linejoin:round}"
    ".rim{stroke-width:2;fill:none}.dashed{stroke-dasharray:5 4;stroke-width:1.5}"
    ".dots{stroke:currentColor;stroke-width:3;stroke-linecap:round;stroke-opacity:.6;fill:none}"
    ".crosses{stroke:currentColor;stroke-width:1.4;fill:none}";

std::string style(const Theme& theme) {
  std::string text = join(".paper{fill:", theme.paper, "}.ink{fill:", theme.ink,
                          "}.muted{fill:", theme.muted, "}.grid{stroke:", theme.grid,
                          "}.axis{stroke:", theme.axis, "}.rim{stroke:", theme.ink, "}");
  for (size_t i = 0; i < theme.series.size(); ++i) {
    text += join(".s", i, "{color:", theme.series[i], "}");
  }
  return text;
}

}  // namespace

Svg::Svg(double width, double height, std::string_view title) : width_(width), height_(height) {
  add("title", {}, title);
  add("style", {},
      join(kForms, style(kLight), "@media (prefers-color-scheme:dark){", style(kDark), "}"));
  add("rect", {{"class", "paper"}, {"width", svg_number(width)}, {"height", svg_number(height)}});
}

void Svg::start(std::string_view element, const Attributes& attributes) {
  body_.append("<").append(element);
  for (const auto& [name, value] : attributes) {
    body_.append(" ").append(name).append("=\"").append(xml_text(value)).append("\"");
  }
}

void Svg::add(std::string_view element, const Attributes& attributes, std::string_view text) {
  start(element, attributes);
  if (text.empty()) {
    body_ += "/>\n";
  } else {
    body_.append(">").append(xml_text(text)).append("</").append(element).append(">\n");
  }
}

void Svg::open(std::string_view element, const Attributes& attributes) {
  start(element, attributes);
  body_ += ">\n";
  open_.emplace_back(element);
}

void Svg::close() {
  AB_CHECK(!open_.empty(), "no element of the drawing is open");
  body_ += "</" + open_.back() + ">\n";
  open_.pop_back();
}

std::string Svg::text() const {
  AB_CHECK(open_.empty(), "<", open_.back(), "> of the drawing is still open");
  const std::string w = svg_number(width_), h = svg_number(height_);
  return join("<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" width=\"", w, "\" height=\"",
              h, "\" viewBox=\"0 0 ", w, " ", h, "\">\n", body_, "</svg>\n");
}

std::string xml_text(std::string_view text) {
  std::string all;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    switch (c) {
      case '&':
        all += "&amp;";
        break;
      case '<':
        all += "&lt;";
        break;
      case '>':
        all += "&gt;";
        break;
      case '"':
        all += "&quot;";
        break;
      default:  // XML 1.0 knows no other control characters, not even escaped ones
        all += byte < 0x20 && c != '\n' && c != '\t' ? ' ' : c;
    }
  }
  return all;
}

std::string svg_number(double value) {
  AB_CHECK(std::isfinite(value), "a coordinate is ", value, ", must be finite");
  std::array<char, 400> digits{};  // the largest double has 309 before the point
  std::snprintf(digits.data(), digits.size(), "%.2f", value);
  std::string text = digits.data();
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text == "-0" ? "0" : text;
}

std::string svg_series(int64_t series, std::string_view mark) {
  return join("s", series % Svg::kSeries, " ", mark);
}

}  // namespace anabranch
