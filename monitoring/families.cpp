#include "monitoring/families.h"

#include <prometheus/metric_family.h>

#include "monitoring/metrics.h"

namespace anabranch {

namespace {

const char* label_name(MetricLabel label) {
  switch (label) {
    case MetricLabel::kStat:
      return "stat";
    case MetricLabel::kCollective:
      return "collective";
    case MetricLabel::kReason:
      return "reason";
    case MetricLabel::kSource:
      return "source";
    case MetricLabel::kCause:
      return "cause";
    case MetricLabel::kLayer:
      return "layer";
    case MetricLabel::kStream:
      return "stream";
    case MetricLabel::kExpert:
      return "expert";
    case MetricLabel::kExperts:
      return "experts";
    case MetricLabel::kNone:
      break;
  }
  return "";
}

prometheus::ClientMetric client_metric(const MetricSpec& spec, const Metrics::Series& series) {
  prometheus::ClientMetric metric;
  if (spec.label != MetricLabel::kNone) {
    const std::string first =
        series.layer < 0 ? std::string(series.label) : std::to_string(series.layer);
    metric.label.push_back({series.layer < 0 ? label_name(spec.label) : "layer", first});
  }
  if (series.part >= 0) {
    metric.label.push_back({label_name(spec.label), std::to_string(series.part)});
  }
  switch (spec.type) {
    case MetricType::kCounter:
      metric.counter.value = series.value;
      break;
    case MetricType::kGauge:
      metric.gauge.value = series.value;
      break;
    case MetricType::kHistogram: {
      const std::vector<double> bounds = Metrics::bounds();
      for (size_t i = 0; i < bounds.size(); ++i) {
        metric.histogram.bucket.push_back({series.buckets[i], bounds[i]});
      }
      metric.histogram.sample_count = series.buckets.back();
      metric.histogram.sample_sum = series.value;
      break;
    }
  }
  return metric;
}

prometheus::MetricType type_of(MetricType type) {
  switch (type) {
    case MetricType::kCounter:
      return prometheus::MetricType::Counter;
    case MetricType::kGauge:
      return prometheus::MetricType::Gauge;
    case MetricType::kHistogram:
      break;
  }
  return prometheus::MetricType::Histogram;
}

}  // namespace

std::vector<prometheus::MetricFamily> collect_families(const Metrics& metrics) {
  std::vector<prometheus::MetricFamily> families;
  prometheus::MetricFamily info{
      "anabranch_run_info", "What runs; always 1.", prometheus::MetricType::Gauge, {{}}};
  for (const auto& [name, value] : metrics.info()) info.metric[0].label.push_back({name, value});
  info.metric[0].gauge.value = 1;
  families.push_back(std::move(info));

  for (size_t i = 0; i < kMetrics.size(); ++i) {
    const MetricSpec& spec = kMetrics[i];
    prometheus::MetricFamily family{
        std::string("anabranch_") + spec.name, spec.help, type_of(spec.type), {}};
    for (const Metrics::Series& series : metrics.read(Metric(i))) {
      family.metric.push_back(client_metric(spec, series));
    }
    if (!family.metric.empty()) families.push_back(std::move(family));
  }
  return families;
}

}  // namespace anabranch
