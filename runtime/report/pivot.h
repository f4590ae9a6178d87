// Points of a sweep in the shape of a paper's table: a row for each variant, a column for each N,
// depth or size.
#pragma once

#include <string>
#include <vector>

#include "runtime/report/axes.h"

namespace anabranch {

// Names of axes; empty: chosen. Columns are then N, depth or size, the first that varies; rows are
// the rest, but that sizes, and families that share no column, are tables of their own.
struct PivotWish {
  std::vector<std::string> rows;
  std::string columns;
};

struct Pivot {
  struct Row {
    std::string label;
    std::vector<std::vector<size_t>> cells;  // points, by column; mostly one
  };

  std::string title;                 // what all of its points have; empty: nothing
  std::string axis;                  // of the columns; empty: there is one column
  std::vector<std::string> columns;  // values, numbers rising; empty: points that have none
  std::vector<Row> rows;
};

// Every point is in one cell of one table. Throws Error (usage) for a name that is no axis.
std::vector<Pivot> make_pivots(const SweepRecord& record, const SweepAxes& axes,
                               const PivotWish& wish = {});

// A point's values of some axes as words, "cmollm linear": a family is left out if the next value
// begins with it.
std::string label_of(const SweepAxes& axes, size_t point, const std::vector<size_t>& of);

}  // namespace anabranch
