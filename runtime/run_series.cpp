#include "runtime/run_series.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "core/base/error.h"

namespace anabranch {

namespace {

// Where in a series a step begins.
template <class T>
auto at_step(std::vector<T>& series, int64_t step) {
  return std::ranges::lower_bound(series, step, {}, &T::step);
}

// Drops what was done again from `step` on.
template <class T>
void forget_from(std::vector<T>& series, int64_t step) {
  series.erase(at_step(series, step), series.end());
}

class Collector final : public ReportSink {
 public:
  explicit Collector(RunSeries& series) : series_(series) {}

  void step(const StepReport& r) override {
    if (!series_.steps.empty() && r.step <= series_.steps.back().step) rewind(r.step);
    series_.steps.push_back(r);
  }

  void eval(const EvalReport& r) override {
    forget_from(series_.evals, r.step + 1);
    // One of the same step again is of another source, or looks ahead.
    const auto again = std::remove_if(
        at_step(series_.evals, r.step), series_.evals.end(), [&r](const EvalReport& other) {
          return other.source == r.source && other.looks_ahead == r.looks_ahead;
        });
    series_.evals.erase(again, series_.evals.end());
    series_.evals.push_back(r);
  }

  void save(const SaveReport& r) override {
    forget_from(series_.saves, r.step);
    series_.saves.push_back(r);
  }

  void event(const std::string&, const std::string&) override {}

  void mixture(MixtureReport r) {
    forget_from(series_.mixture, r.step);
    series_.mixture.push_back(std::move(r));
  }

 private:
  void rewind(int64_t step) {
    forget_from(series_.steps, step);
    forget_from(series_.evals, step);
    forget_from(series_.mixture, step);
    forget_from(series_.saves, step);
  }

  RunSeries& series_;
};

}  // namespace

const StepReport* RunSeries::last_step() const { return steps.empty() ? nullptr : &steps.back(); }

std::optional<SourceMean> RunSeries::last_eval(int64_t first, int64_t last,
                                               bool looks_ahead) const {
  SourceMean mean{.step = -1};
  const auto counts = [&](const EvalReport& eval) {
    return eval.looks_ahead == looks_ahead && eval.step >= first && eval.step <= last;
  };
  for (const EvalReport& eval : evals) {
    if (counts(eval)) mean.step = std::max(mean.step, eval.step);
  }
  int64_t sources = 0;
  for (const EvalReport& eval : evals) {
    if (!counts(eval) || eval.step != mean.step) continue;
    mean.loss += eval.loss;
    mean.bits_per_byte += eval.bits_per_byte;
    ++sources;
  }
  if (sources == 0) return {};
  mean.loss /= static_cast<double>(sources);
  mean.bits_per_byte /= static_cast<double>(sources);
  return mean;
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
    const auto mixture = [&](MixtureReport report) { collector.mixture(std::move(report)); };
    if (!read_report(line, total_steps, collector, mixture)) ++series.odd_lines;
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
