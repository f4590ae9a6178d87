#include "runtime/interchange/series_csv.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "core/base/error.h"
#include "runtime/config/number.h"
#include "runtime/interchange/step_figures.h"

namespace anabranch {

namespace {

// [layer][part] of a figure; nothing where it has none.
double value_at(const MixtureReport& report, const std::string& name, size_t layer, size_t part) {
  const auto found = report.figures.find(name);
  if (found == report.figures.end() || layer >= found->second.size()) return std::nan("");
  const std::vector<double>& parts = found->second[layer];
  return part < parts.size() ? parts[part] : std::nan("");
}

size_t most_layers(const MixtureReport& report) {
  size_t most = 0;
  for (const auto& [name, rows] : report.figures) most = std::max(most, rows.size());
  return most;
}

size_t most_parts(const MixtureReport& report, size_t layer) {
  size_t most = 0;
  for (const auto& [name, rows] : report.figures) {
    if (layer < rows.size()) most = std::max(most, rows[layer].size());
  }
  return most;
}

}  // namespace

std::string csv_cell(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"') quoted += c;
    quoted += c;
  }
  return quoted + "\"";
}

std::string csv_cell(double value) { return std::isfinite(value) ? number_text(value) : ""; }

std::string steps_csv(const RunSeries& series) {
  std::string text = "step,tokens_total";
  for (const StepFigure& figure : kStepFigures) text += join(",", figure.name());
  text += ",skipped\n";
  for (const StepReport& step : series.steps) {
    text += join(step.step, ",", step.tokens);
    for (const StepFigure& figure : kStepFigures) text += join(",", csv_cell(figure.of(step)));
    text += join(",", csv_cell(step.skipped), "\n");
  }
  return text;
}

std::string evals_csv(const RunSeries& series) {
  std::string text =
      "step,source,looks_ahead,validation_loss,validation_perplexity,validation_bpb,"
      "validation_loss_looking_ahead,tokens,seconds\n";
  for (const EvalReport& eval : series.evals) {
    const std::string loss = csv_cell(eval.loss);
    text += join(eval.step, ",", csv_cell(eval.source.empty() ? "all" : eval.source), ",",
                 eval.looks_ahead ? "true" : "false", ",", eval.looks_ahead ? "" : loss, ",",
                 csv_cell(eval.perplexity), ",", csv_cell(eval.bits_per_byte), ",",
                 eval.looks_ahead ? loss : "", ",", eval.tokens, ",", csv_cell(eval.seconds), "\n");
  }
  return text;
}

std::string mixture_csv(const RunSeries& series) {
  std::set<std::string> names;
  for (const MixtureReport& report : series.mixture) {
    for (const auto& [name, rows] : report.figures) names.insert(name);
  }
  std::string text = "step,layer,part";
  for (const std::string& name : names) text += join(",", csv_cell(name));
  text += "\n";
  for (const MixtureReport& report : series.mixture) {
    for (size_t layer = 0; layer < most_layers(report); ++layer) {
      for (size_t part = 0; part < most_parts(report, layer); ++part) {
        text += join(report.step, ",", layer, ",", part);
        for (const std::string& name : names) {
          text += join(",", csv_cell(value_at(report, name, layer, part)));
        }
        text += "\n";
      }
    }
  }
  return text;
}

}  // namespace anabranch
