#include "runtime/report/report_table.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "core/base/error.h"

namespace anabranch {

namespace {

constexpr const char* kNothing = "-";

// Letters, not bytes: the sign of a spread is one.
size_t letters(const std::string& text) {
  return static_cast<size_t>(std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::string in_markdown(const ReportCell& cell) {
  std::string text;
  for (const char c : cell.text) {
    if (c == '|' || c == '\\') text += '\\';
    text += c == '\n' || c == '\r' ? ' ' : c;
  }
  return cell.is_best ? join("**", text, "**") : text;
}

std::string padded(const std::string& text, size_t width, bool left) {
  const std::string blank(width - letters(text), ' ');
  return left ? text + blank : blank + text;
}

}  // namespace

std::string markdown(const ReportTable& table) {
  std::vector<std::vector<std::string>> lines{{}};
  for (const std::string& name : table.header) lines[0].push_back(in_markdown(name));
  for (const auto& row : table.rows) {
    std::vector<std::string>& line = lines.emplace_back();
    for (const ReportCell& cell : row) line.push_back(in_markdown(cell));
  }
  std::vector<size_t> widths(table.header.size(), 3);
  for (const auto& line : lines) {
    for (size_t c = 0; c < line.size(); ++c) widths[c] = std::max(widths[c], letters(line[c]));
  }
  std::string text = join("## ", table.title, "\n\n");
  for (const std::string& note : table.notes) text += note + "\n";
  if (!table.notes.empty()) text += "\n";
  if (table.rows.empty()) return text;
  for (size_t l = 0; l < lines.size(); ++l) {
    for (size_t c = 0; c < lines[l].size(); ++c) {
      text += join("| ", padded(lines[l][c], widths[c], c < table.words), " ");
    }
    text += "|\n";
    for (size_t c = 0; l == 0 && c < widths.size(); ++c) {
      text += join("|", std::string(widths[c] + 1, '-'), c < table.words ? "-" : ":");
    }
    if (l == 0) text += "|\n";
  }
  return text + "\n";
}

std::string fixed_text(double value, int digits) {
  if (std::isnan(value)) return kNothing;
  std::array<char, 400> text{};
  std::snprintf(text.data(), text.size(), "%.*f", digits, value);
  return text.data();
}

std::string unit_text(double value) {
  if (std::isnan(value)) return kNothing;
  size_t unit = 0;
  constexpr std::array kUnits{"", "k", "M", "G", "T", "P", "E", "Z"};
  while (std::abs(value) >= 999.95 && unit + 1 < kUnits.size()) {
    value /= 1000;
    ++unit;
  }
  std::array<char, 400> text{};
  std::snprintf(text.data(), text.size(), "%.4g%s", value, kUnits[unit]);
  return text.data();
}

std::string duration_text(double seconds) {
  if (std::isnan(seconds)) return kNothing;
  if (seconds < 120) return fixed_text(seconds, 1) + " s";
  if (seconds < 7200) return fixed_text(seconds / 60, 1) + " min";
  return fixed_text(seconds / 3600, 1) + " h";
}

std::string sample_text(const Sample& sample, int digits) {
  if (sample.count < 2) return fixed_text(sample.mean, digits);
  return fixed_text(sample.mean, digits) + " \u00b1 " + fixed_text(sample.deviation, digits);
}

std::string interval_text(const Interval& interval, int digits) {
  if (std::isnan(interval.low)) return kNothing;
  const auto side = [digits](double value) {
    return std::isfinite(value) ? fixed_text(value, digits) : std::string("open");
  };
  return join("[", side(interval.low), ", ", side(interval.high), "]");
}

std::string seeds_text(int64_t seeds) {
  if (seeds == 0) return kNothing;
  return seeds > kMostSeeds ? join("over ", kMostSeeds) : std::to_string(seeds);
}

}  // namespace anabranch
