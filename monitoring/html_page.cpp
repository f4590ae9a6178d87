#include "monitoring/html_page.h"

#include <algorithm>

#include "core/base/error.h"
#include "monitoring/run_page.h"
#include "monitoring/svg.h"

namespace anabranch {

namespace {

std::string link(std::string_view to, std::string_view name, std::string_view here) {
  return join("<a href=\"", to, "\"", to == here ? " aria-current=\"page\"" : "", ">", name,
              "</a>\n");
}

std::string info_of(const Labels& info, std::string_view name) {
  const auto found = std::ranges::find(info, name, &Labels::value_type::first);
  return found == info.end() ? "" : xml_text(found->second);
}

}  // namespace

HtmlPage::HtmlPage(const Labels& info, std::string_view path, std::string_view live) {
  std::string rest;
  for (const auto& [name, value] : info) {
    if (name != "run") rest += join(rest.empty() ? "" : " \u00b7 ", name, " ", xml_text(value));
  }
  const std::string run = info_of(info, "run");
  text_ = join("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n",
               "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"/>\n",
               "<title>", run, " \u2013 Anabranch</title>\n<link rel=\"icon\" href=\"data:,\"/>\n",
               "<noscript><meta http-equiv=\"refresh\" content=\"5\"/></noscript>\n<style>",
               kPageStyle, "</style>\n<script src=\"/page.js\" defer=\"defer\"></script>\n",
               "</head>\n<body>\n<header><h1>", run, "</h1><p>", rest, "</p><nav>\n",
               link("/", "Run", path), link("/utilisation", "Utilisation", path),
               "</nav></header>\n<main id=\"live\" ", live, ">\n");
}

void HtmlPage::heading(std::string_view text) { text_ += join("<h2>", xml_text(text), "</h2>\n"); }

void HtmlPage::tiles(const std::vector<Tile>& tiles) {
  text_ += "<dl class=\"tiles\">\n";
  for (const Tile& tile : tiles) {
    text_ += join("<div><dt>", xml_text(tile.name), "</dt><dd>", xml_text(tile.value));
    if (!tile.note.empty()) text_ += join(" <small>", xml_text(tile.note), "</small>");
    text_ += "</dd></div>\n";
  }
  text_ += "</dl>\n";
}

void HtmlPage::progress(double part) {
  text_ += join("<progress max=\"1\" value=\"", svg_number(std::clamp(part, 0.0, 1.0)),
                "\" aria-label=\"part of the run that is done\"></progress>\n");
}

void HtmlPage::charts(const std::vector<std::string>& drawings) {
  text_ += "<div class=\"charts\">\n";
  for (const std::string& drawing : drawings)
    text_ += join("<div class=\"box\">", drawing, "</div>\n");
  text_ += "</div>\n";
}

void HtmlPage::table(const std::vector<std::vector<std::string>>& rows) {
  text_ += "<div class=\"box\"><table>\n";
  for (size_t r = 0; r < rows.size(); ++r) {
    text_ += "<tr>";
    for (size_t c = 0; c < rows[r].size(); ++c) {
      const char* cell = r == 0 || c == 0 ? "th" : "td";
      text_ += join("<", cell, ">", xml_text(rows[r][c]), "</", cell, ">");
    }
    text_ += "</tr>\n";
  }
  text_ += "</table></div>\n";
}

std::string HtmlPage::text() const {
  return text_ +
         "</main>\n<footer id=\"state\">Figures since this process began, by "
         "step.</footer>\n</body>\n</html>\n";
}

}  // namespace anabranch
