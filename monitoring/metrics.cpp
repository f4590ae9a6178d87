#include "monitoring/metrics.h"

#include <algorithm>
#include <limits>
#include <sstream>

#include <prometheus/text_serializer.h>

#include "core/base/error.h"
#include "monitoring/families.h"

namespace anabranch {

namespace {

constexpr std::array kBounds{0.01, 0.02, 0.05,  0.1,   0.2,
                             0.5,  1.0,  2.0,   5.0,   10.0,
                             20.0, 50.0, 100.0, 200.0, std::numeric_limits<double>::infinity()};

}  // namespace

static_assert(
    [] {
      for (size_t i = 0; i < kMetrics.size(); ++i) {
        if (kMetrics[i].id != Metric(i)) return false;
      }
      return kMetrics.size() == static_cast<size_t>(Metric::kPositiveB) + 1;
    }(),
    "kMetrics is not in the order of Metric");

Metrics::Metrics(Labels info, std::vector<std::string> sources, PartCounts parts, int64_t limit,
                 bool gpus)
    : info_(std::move(info)), parts_(parts), limit_(limit), gpus_(gpus), buckets_(kBounds.size()) {
  const auto labels = [&](MetricLabel label) -> auto& {
    return labels_[static_cast<size_t>(label)];
  };
  labels(MetricLabel::kNone) = {""};
  labels(MetricLabel::kStat) = {"min", "median", "max"};
  labels(MetricLabel::kCollective) = {"all_reduce", "all_gather", "reduce_scatter",
                                      "all_to_all", "broadcast",  "barrier"};
  labels(MetricLabel::kReason) = {"nonfinite", "outlier"};
  labels(MetricLabel::kCause) = {kThrottleCauses.begin(), kThrottleCauses.end()};
  labels(MetricLabel::kSource) = std::move(sources);

  size_t cells = 0;
  for (size_t i = 0; i < kMetrics.size(); ++i) {
    first_cell_[i] = cells;
    cells += series_of(Metric(i));
  }
  cells_ = std::make_unique<std::atomic<double>[]>(cells);
  for (size_t i = 0; i < kMetrics.size(); ++i) {
    const bool is_gauge = kMetrics[i].type == MetricType::kGauge;
    for (size_t j = 0; j < series_of(Metric(i)); ++j) {
      cells_[first_cell_[i] + j] = is_gauge ? std::numeric_limits<double>::quiet_NaN() : 0.0;
    }
  }
}

void Metrics::set(Metric metric, double value, std::string_view label) {
  if (series_of(metric) == 0) return;
  cells_[cell_of(metric, label)].store(value, std::memory_order_relaxed);
}

void Metrics::set(Metric metric, double value, int64_t layer, int64_t part) {
  const auto [layers, parts] = grid_of(metric);
  if (series_of(metric) == 0) return;
  AB_CHECK(layer >= 0 && layer < layers && part >= 0 && part < parts, "metric ",
           spec_of(metric).name, " of layer ", layer, ", part ", part, "; there are ", layers,
           " layers of ", parts);
  const size_t place =
      first_cell_[static_cast<size_t>(metric)] + static_cast<size_t>(layer * parts + part);
  cells_[place].store(value, std::memory_order_relaxed);
}

void Metrics::add(Metric metric, double amount, std::string_view label) {
  AB_CHECK(spec_of(metric).type == MetricType::kCounter, spec_of(metric).name, " is no counter");
  cells_[cell_of(metric, label)].fetch_add(amount, std::memory_order_relaxed);
}

void Metrics::observe(Metric metric, double value) {
  AB_CHECK(metric == Metric::kStepSeconds, spec_of(metric).name, " is no histogram");
  size_t bucket = 0;
  while (value > kBounds[bucket]) ++bucket;
  buckets_[bucket].fetch_add(1, std::memory_order_relaxed);
  cells_[cell_of(metric, {})].fetch_add(value, std::memory_order_relaxed);
}

double Metrics::value(Metric metric, std::string_view label) const {
  return cells_[cell_of(metric, label)].load(std::memory_order_relaxed);
}

std::vector<Metrics::Series> Metrics::read(Metric metric) const {
  std::vector<Series> all;
  const MetricLabel kind = spec_of(metric).label;
  const std::vector<std::string>& labels = labels_of(metric);
  const int64_t parts = std::max<int64_t>(grid_of(metric).second, 1);
  for (size_t i = 0; i < series_of(metric); ++i) {
    Series series;
    if (kind < MetricLabel::kLayer) series.label = labels[i];
    if (kind >= MetricLabel::kLayer) series.layer = static_cast<int64_t>(i) / parts;
    if (kind > MetricLabel::kLayer) series.part = static_cast<int64_t>(i) % parts;
    const size_t cell = first_cell_[static_cast<size_t>(metric)] + i;
    series.value = cells_[cell].load(std::memory_order_relaxed);
    if (spec_of(metric).type == MetricType::kHistogram) {
      uint64_t count = 0;
      for (const auto& bucket : buckets_) {
        count += bucket.load(std::memory_order_relaxed);
        series.buckets.push_back(count);
      }
    }
    all.push_back(std::move(series));
  }
  return all;
}

std::string Metrics::text() const {
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(out, collect_families(*this));
  return std::move(out).str();
}

std::vector<double> Metrics::bounds() { return {kBounds.begin(), kBounds.end()}; }

const std::vector<std::string>& Metrics::labels_of(Metric metric) const {
  return labels_[static_cast<size_t>(spec_of(metric).label)];
}

std::pair<int64_t, int64_t> Metrics::grid_of(Metric metric) const {
  switch (spec_of(metric).label) {
    case MetricLabel::kNone:
      return {1, 1};
    case MetricLabel::kLayer:
      return {parts_.layers, 1};
    case MetricLabel::kStream:
      return {parts_.layers, parts_.streams};
    case MetricLabel::kExpert:
      return {parts_.layers, parts_.experts};
    case MetricLabel::kExperts:
      return {parts_.layers, parts_.experts > 0 ? parts_.experts + 1 : 0};
    default:
      return {0, 0};
  }
}

size_t Metrics::series_of(Metric metric) const {
  if (is_of_mixtures(metric) && parts_ == PartCounts{}) return 0;
  if (is_of_gpus(metric) && !gpus_) return 0;
  if (spec_of(metric).label < MetricLabel::kLayer) return labels_of(metric).size();
  const auto [layers, parts] = grid_of(metric);
  return layers * parts <= limit_ ? static_cast<size_t>(layers * parts) : 0;
}

size_t Metrics::cell_of(Metric metric, std::string_view label) const {
  const std::vector<std::string>& labels = labels_of(metric);
  const size_t count = std::min(labels.size(), series_of(metric));
  for (size_t i = 0; i < count; ++i) {
    if (labels[i] == label) return first_cell_[static_cast<size_t>(metric)] + i;
  }
  AB_FAIL("metric ", spec_of(metric).name, " has no label \"", label, "\"");
}

}  // namespace anabranch
