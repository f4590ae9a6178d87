// A run's metrics as CSV files, for tables and plots elsewhere.
#pragma once

#include <string>

#include "runtime/run_series.h"

namespace anabranch {

// Columns have the names of metrics.jsonl; an empty cell is no figure. Cells are quoted as RFC 4180
// says. Tokens, losses and rates of each logged step:
std::string steps_csv(const RunSeries& series);

// Evaluations: a row for each step, source, and whether it looks ahead.
std::string evals_csv(const RunSeries& series);

// A model's own figures: a row for each step, layer and part (stream or expert), both from 0, and a
// column for each figure that the run has; one of the whole model, or of a layer, stands in the
// first row of these.
std::string mixture_csv(const RunSeries& series);

// A cell, in quotes if it must be; a number as it reads back, empty if it is not finite.
std::string csv_cell(const std::string& text);
std::string csv_cell(double value);

}  // namespace anabranch
