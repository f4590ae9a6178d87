#include "monitoring/metrics.h"

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

Metrics::Metrics(Labels info, std::vector<std::string> sources)
    : info_(std::move(info)), buckets_(kBounds.size()) {
  const auto labels = [&](MetricLabel label) -> auto& {
    return labels_[static_cast<size_t>(label)];
  };
  labels(MetricLabel::kNone) = {""};
  labels(MetricLabel::kStat) = {"min", "median", "max"};
  labels(MetricLabel::kCollective) = {"all_reduce", "all_gather", "reduce_scatter",
                                      "all_to_all", "broadcast",  "barrier"};
  labels(MetricLabel::kReason) = {"nonfinite", "outlier"};
  labels(MetricLabel::kSource) = std::move(sources);

  size_t cells = 0;
  for (size_t i = 0; i < kMetrics.size(); ++i) {
    first_cell_[i] = cells;
    cells += labels_of(Metric(i)).size();
  }
  cells_ = std::make_unique<std::atomic<double>[]>(cells);
  for (size_t i = 0; i < kMetrics.size(); ++i) {
    const bool is_gauge = kMetrics[i].type == MetricType::kGauge;
    for (size_t j = 0; j < labels_of(Metric(i)).size(); ++j) {
      cells_[first_cell_[i] + j] = is_gauge ? std::numeric_limits<double>::quiet_NaN() : 0.0;
    }
  }
}

void Metrics::set(Metric metric, double value, std::string_view label) {
  cells_[cell_of(metric, label)].store(value, std::memory_order_relaxed);
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
  for (const std::string& label : labels_of(metric)) {
    Series series{label, value(metric, label), {}};
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

size_t Metrics::cell_of(Metric metric, std::string_view label) const {
  const std::vector<std::string>& labels = labels_of(metric);
  for (size_t i = 0; i < labels.size(); ++i) {
    if (labels[i] == label) return first_cell_[static_cast<size_t>(metric)] + i;
  }
  AB_FAIL("metric ", spec_of(metric).name, " has no label \"", label, "\"");
}

}  // namespace anabranch
