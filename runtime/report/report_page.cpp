#include "runtime/report/report_page.h"

#include "core/base/error.h"
#include "monitoring/svg.h"

namespace anabranch {

namespace {

// The colours are those of the drawings.
constexpr const char* kStyle =
    ":root{color-scheme:light dark;--paper:#fcfcfb;--ink:#0b0b0b;--muted:#52514e;--line:#e6e5df;"
    "--best:#eaf1fb}"
    "@media (prefers-color-scheme:dark){:root{--paper:#1a1a19;--ink:#fff;--muted:#c3c2b7;"
    "--line:#33332f;--best:#22344a}}"
    "body{margin:0 auto;padding:16px;max-width:1460px;background:var(--paper);color:var(--ink);"
    "font:15px/1.45 system-ui,sans-serif}"
    "h1{font-size:22px}h2{font-size:17px;margin:32px 0 8px}p{margin:0 0 6px;color:var(--muted)}"
    "a{color:inherit}"
    "nav a{margin-right:14px}"
    ".wide{overflow-x:auto;margin:8px 0}"
    "table{border-collapse:collapse;font-variant-numeric:tabular-nums;white-space:nowrap}"
    "th,td{padding:4px 10px;border-bottom:1px solid var(--line);text-align:right}"
    "th{color:var(--muted);font-weight:600}"
    ".word{text-align:left}"
    "td.best{background:var(--best);font-weight:600}"
    ".plots{display:flex;flex-wrap:wrap;gap:12px}"
    ".plots svg{max-width:100%;height:auto;border:1px solid var(--line)}"
    "@media print{:root{color-scheme:light}.wide{overflow:visible}table{font-size:10px}"
    "h2{break-after:avoid}tr,svg{break-inside:avoid}nav{display:none}}";

std::string element(const char* name, const std::string& text) {
  return join("<", name, ">", xml_text(text), "</", name, ">\n");
}

// A link and what it leads to share this.
std::string anchor(size_t number) { return join("part-", number); }

std::string heading(const std::string& title, size_t number) {
  return join("<h2 id=\"", anchor(number), "\">", xml_text(title), "</h2>\n");
}

std::string cell(const char* name, const ReportCell& cell, bool is_word) {
  const char* kind = is_word ? " class=\"word\"" : cell.is_best ? " class=\"best\"" : "";
  return join("<", name, kind, ">", xml_text(cell.text), "</", name, ">");
}

std::string html(const ReportTable& table) {
  std::string text;
  for (const std::string& note : table.notes) text += element("p", note);
  if (table.rows.empty()) return text;
  text += "<div class=\"wide\"><table>\n<thead><tr>";
  for (size_t c = 0; c < table.header.size(); ++c) {
    text += cell("th", table.header[c], c < table.words);
  }
  text += "</tr></thead>\n<tbody>\n";
  for (const auto& row : table.rows) {
    text += "<tr>";
    for (size_t c = 0; c < row.size(); ++c) text += cell("td", row[c], c < table.words);
    text += "</tr>\n";
  }
  return text + "</tbody></table></div>\n";
}

// In a page a drawing needs no name space, and scales by its viewBox.
std::string inlined(std::string svg) {
  const std::string space = " xmlns=\"http://www.w3.org/2000/svg\"";
  const size_t at = svg.find(space);
  return at == std::string::npos ? svg : svg.erase(at, space.size());
}

std::string html(const PageSection& section) {
  std::string text = section.note.empty() ? "" : element("p", section.note);
  text += "<div class=\"plots\">\n";
  for (const NamedDrawing& drawing : section.drawings) text += inlined(drawing.svg);
  return text + "</div>\n";
}

}  // namespace

std::string report_page(const std::string& title, const std::vector<std::string>& head,
                        const std::vector<ReportTable>& tables,
                        const std::vector<PageSection>& sections) {
  std::string links, body;
  size_t number = 0;
  const auto add = [&](const std::string& name, const std::string& text) {
    ++number;
    links += join("<a href=\"#", anchor(number), "\">", xml_text(name), "</a>\n");
    body += heading(name, number) + text;
  };
  for (const ReportTable& table : tables) add(table.title, html(table));
  for (const PageSection& section : sections) {
    if (!section.drawings.empty()) add(section.title, html(section));
  }
  std::string text = "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n";
  text += "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n";
  text += element("title", title) + element("style", kStyle) + "</head>\n<body>\n";
  text += element("h1", title);
  for (const std::string& line : head) text += element("p", line);
  return text + "<nav>\n" + links + "</nav>\n" + body + "</body>\n</html>\n";
}

}  // namespace anabranch
