// The papers' figures from what runs tell of their own gates and routers: shares of streams, router
// and gate, induced bias, kappa with its alpha and b.
#pragma once

#include <string>
#include <vector>

#include "runtime/report/line_plot.h"
#include "runtime/report/report.h"

namespace anabranch {

// A figure by step and layer of one point, mean and range over its complete runs, at the steps that
// all of them have.
struct MixtureFigure {
  std::vector<int64_t> steps;
  // [step][layer][part]; not-a-number where a run has none.
  std::vector<std::vector<std::vector<double>>> mean, low, high;

  // Layers with a figure in the last step, rising.
  [[nodiscard]] std::vector<size_t> layers() const;
};

// Empty if no run has it, or if their shapes differ.
MixtureFigure mixture_figure(const SweepReport& report, size_t point, const std::string& name);

// For each point and each figure that it has: over training, in the middle one of its layers; and
// if it has several, by layer at the end, and the first line over training in up to six layers.
// Layers, streams and experts count from 0.
std::vector<NamedDrawing> paper_figures(const SweepReport& report);

}  // namespace anabranch
