// The object that holds a job's values of the metrics in the table.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "monitoring/metric_table.h"
#include "monitoring/part_counts.h"

namespace anabranch {

// Names and values, e.g. {{"run", "a"}}.
using Labels = std::vector<std::pair<std::string, std::string>>;

// A job's values. Recording is a few atomic operations, from any thread; reading is for the
// scraper.
class Metrics {
 public:
  // Counters start at 0 and gauges as not-a-number (not known yet), every series at once.
  //
  //   info     constant labels of run_info: run, model, version, ...
  //   sources  values of the `source` label
  //   parts    of the run's model; all zero: the metrics of mixtures have no series
  //   limit    series that a metric may have by layer, stream or expert; else it has none
  //   gpus     whether figures of GPUs are known; if not, the metrics of GPUs have no series
  explicit Metrics(Labels info, std::vector<std::string> sources = {"all"}, PartCounts parts = {},
                   int64_t limit = kLabelLimit, bool gpus = false);

  // A gauge's value, or a counter's total. `label` must be a value of the metric's label.
  // Throws Error (internal) if it is not. Does nothing if the metric has no series.
  void set(Metric metric, double value, std::string_view label = {});
  // A gauge of mixtures: of a layer, of a stream or expert of a layer, or of the model. Does
  // nothing if the metric has no series.
  //
  //   layer  from 0; 0 of a metric that has none
  //   part   the stream or expert, likewise
  //
  // Throws Error (internal) if the run's model has no such layer or part.
  void set(Metric metric, double value, int64_t layer, int64_t part);
  // Adds to a counter.
  void add(Metric metric, double amount, std::string_view label = {});
  // Counts a value in a histogram.
  void observe(Metric metric, double value);

  [[nodiscard]] double value(Metric metric, std::string_view label = {}) const;

  // Whether the metric has series in this run.
  [[nodiscard]] bool has(Metric metric) const { return series_of(metric) > 0; }

  // A metric's series with their present values; of a histogram, cumulative counts by upper bound.
  struct Series {
    std::string_view label;
    int64_t layer = -1, part = -1;  // -1: not labelled so
    double value = 0;               // of a histogram: the sum
    std::vector<uint64_t> buckets;
  };

  [[nodiscard]] std::vector<Series> read(Metric metric) const;

  [[nodiscard]] const Labels& info() const { return info_; }

  // All metrics in the Prometheus text format.
  [[nodiscard]] std::string text() const;

  // The `limit` of a run that sets none.
  static constexpr int64_t kLabelLimit = 1024;

  // Upper bounds of step_seconds' buckets, in seconds; the last is infinity.
  static std::vector<double> bounds();

 private:
  [[nodiscard]] const std::vector<std::string>& labels_of(Metric metric) const;
  // How many layers, and parts of each, a metric has series for.
  [[nodiscard]] std::pair<int64_t, int64_t> grid_of(Metric metric) const;
  [[nodiscard]] size_t series_of(Metric metric) const;
  [[nodiscard]] size_t cell_of(Metric metric, std::string_view label) const;

  Labels info_;
  PartCounts parts_;
  int64_t limit_;
  bool gpus_;
  std::array<std::vector<std::string>, 10> labels_;   // by MetricLabel
  std::array<size_t, kMetrics.size()> first_cell_{};  // by Metric
  std::unique_ptr<std::atomic<double>[]> cells_;
  std::vector<std::atomic<uint64_t>> buckets_;  // not cumulative
};

}  // namespace anabranch
