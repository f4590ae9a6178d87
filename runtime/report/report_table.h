// Tables of a report, before they are Markdown or HTML, and how figures stand in them.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "runtime/report/statistics.h"

namespace anabranch {

struct ReportCell {
  std::string text;
  bool is_best = false;  // of its column: stands out

  ReportCell(std::string words, bool best = false)  // NOLINT(google-explicit-constructor)
      : text(std::move(words)), is_best(best) {}
};

struct ReportTable {
  std::string title;
  std::vector<std::string> notes;  // what the reader has to know, above
  std::vector<std::string> header;
  std::vector<std::vector<ReportCell>> rows;
  size_t words = 1;  // columns of text at the left; the others are figures
};

// A heading, the notes, and a table whose source reads well too.
std::string markdown(const ReportTable& table);

// "-" where there is no figure; so do all of these.
std::string fixed_text(double value, int digits);

// Four digits at most, with k, M, G, T, P, E, Z: 85.05M.
std::string unit_text(double value);

// 12.5 s, 3.2 min, 4.1 h.
std::string duration_text(double seconds);

// The mean, and the deviation if there are two values or more: "2.5500 +- 0.0100".
std::string sample_text(const Sample& sample, int digits);

// "[-0.0200, 0.0100]"; an infinite side is open.
std::string interval_text(const Interval& interval, int digits);

// A number of seeds as seeds_needed() gives it.
std::string seeds_text(int64_t seeds);

}  // namespace anabranch
