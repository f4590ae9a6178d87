#include "runtime/run_series.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "runtime/metrics_reader.h"

namespace anabranch {

namespace {

using Json = nlohmann::json;

// Drops what was done again from `step` on. Several lines of one step, as evaluations on several
// sources write, stand unless an earlier step follows a later one.
template <class T>
void forget_from(std::vector<T>& series, int64_t step) {
  std::erase_if(series, [step](const T& each) { return each.step >= step; });
}

class Collector final : public ReportSink {
 public:
  explicit Collector(RunSeries& series) : series_(series) {}

  void step(const StepReport& r) override {
    if (!series_.steps.empty() && r.step <= series_.steps.back().step) rewind(r.step);
    series_.steps.push_back(r);
  }

  void eval(const EvalReport& r) override {
    // After its step's line; one of the same step again is of another source, or looks ahead.
    std::erase_if(series_.evals, [&r](const EvalReport& other) {
      return other.step > r.step || (other.step == r.step && other.source == r.source &&
                                     other.looks_ahead == r.looks_ahead);
    });
    series_.evals.push_back(r);
  }

  void save(const SaveReport& r) override {
    forget_from(series_.saves, r.step);
    series_.saves.push_back(r);
  }

  void event(const std::string&, const std::string&) override {}

 private:
  void rewind(int64_t step) {
    forget_from(series_.steps, step);
    forget_from(series_.evals, step);
    forget_from(series_.mixture, step);
    forget_from(series_.saves, step);
  }

  RunSeries& series_;
};

double number_of(const Json& value) {
  return value.is_number() ? value.get<double>() : std::numeric_limits<double>::quiet_NaN();
}

// A number, an array by layer, or one by layer of arrays by part.
std::vector<std::vector<double>> rows_of(const Json& value) {
  if (!value.is_array()) return {{number_of(value)}};
  std::vector<std::vector<double>> rows;
  for (const Json& layer : value) {
    std::vector<double>& row = rows.emplace_back();
    if (!layer.is_array()) {
      row.push_back(number_of(layer));
      continue;
    }
    for (const Json& part : layer) row.push_back(number_of(part));
  }
  return rows;
}

// What a line says if it is one of a model's own figures.
std::optional<MixtureReport> mixture_of(const std::string& line) {
  const Json parsed = Json::parse(line, nullptr, false);
  if (!parsed.is_object() || parsed.value("type", Json()) != "mixture") return {};
  MixtureReport report;
  for (const auto& [name, value] : parsed.items()) {
    if (name == "step") {
      report.step = value.get<int64_t>();
    } else if (name != "type") {
      report.figures[name] = rows_of(value);
    }
  }
  return report;
}

}  // namespace

const StepReport* RunSeries::last_step() const { return steps.empty() ? nullptr : &steps.back(); }

const EvalReport* RunSeries::last_eval(const std::string& source) const {
  const auto found = std::find_if(evals.rbegin(), evals.rend(), [&source](const EvalReport& each) {
    return !each.looks_ahead && each.source == source;
  });
  return found == evals.rend() ? nullptr : &*found;
}

RunSeries read_series(const std::string& path, int64_t total_steps) {
  if (!std::filesystem::is_regular_file(path)) {
    throw data_error(path, ": no such file; expected a run directory with metrics");
  }
  std::ifstream in(path, std::ios::binary);
  if (!in) throw io_error("cannot read ", path, ": ", std::strerror(errno));
  RunSeries series;
  Collector collector(series);
  for (std::string line; std::getline(in, line) && !in.eof();) {
    if (!read_report(line, total_steps, collector)) {
      ++series.odd_lines;
    } else if (std::optional<MixtureReport> report = mixture_of(line)) {
      forget_from(series.mixture, report->step);
      series.mixture.push_back(std::move(*report));
    }
  }
  if (in.bad()) throw io_error("cannot read ", path, ": ", std::strerror(errno));
  return series;
}

std::vector<double> seconds_by_step(const std::vector<StepReport>& steps) {
  std::vector<double> seconds;
  double sum = 0;
  int64_t tokens = 0;
  for (const StepReport& step : steps) {
    if (step.tokens_per_second > 0) {
      sum += static_cast<double>(step.tokens - tokens) / step.tokens_per_second;
    }
    tokens = step.tokens;
    seconds.push_back(sum);
  }
  return seconds;
}

}  // namespace anabranch
