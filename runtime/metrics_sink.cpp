#include "runtime/metrics_sink.h"

#include <array>
#include <chrono>
#include <limits>

namespace anabranch {
namespace {

double unix_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// The label that a collective is counted under.
const char* label_of(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kAllReduceSum:
    case CollectiveKind::kAllReduceMax:
      return "all_reduce";
    case CollectiveKind::kAllGather:
      return "all_gather";
    case CollectiveKind::kReduceScatterSum:
      return "reduce_scatter";
    case CollectiveKind::kBroadcast:
      return "broadcast";
    case CollectiveKind::kAllToAll:
      return "all_to_all";
    case CollectiveKind::kBarrier:
      return "barrier";
  }
  return "barrier";
}

void set_spread(Metrics& metrics, Metric metric, const Spread& spread) {
  metrics.set(metric, spread.min, "min");
  metrics.set(metric, spread.median, "median");
  metrics.set(metric, spread.max, "max");
}

void set_comm(Metrics& metrics, const CommStats& stats) {
  // Two kinds share a label, so totals are added up before they are set.
  std::array<double, kCollectiveKinds> bytes{}, seconds{};
  for (int k = 0; k < kCollectiveKinds; ++k) {
    const auto kind = static_cast<CollectiveKind>(k);
    const bool max = kind == CollectiveKind::kAllReduceMax;
    const auto place = static_cast<size_t>(max ? CollectiveKind::kAllReduceSum : kind);
    bytes[place] += static_cast<double>(stats.of(kind).bytes);
    seconds[place] += stats.of(kind).seconds;
  }
  for (int k = 0; k < kCollectiveKinds; ++k) {
    const auto kind = static_cast<CollectiveKind>(k);
    if (kind == CollectiveKind::kAllReduceMax) continue;
    metrics.set(Metric::kCommunicationBytes, bytes[static_cast<size_t>(k)], label_of(kind));
    metrics.set(Metric::kCommunicationSeconds, seconds[static_cast<size_t>(k)], label_of(kind));
  }
}

const Spread& spread_of(const std::vector<Spread>& gpu, Metric metric) {
  return gpu[static_cast<size_t>(metric) - static_cast<size_t>(kGpuMetrics[0].id)];
}

// Of the ranks' GPUs. What no rank knows stays as it was: unknown, or for a sum 0.
void set_gpus(Metrics& metrics, const std::vector<Spread>& gpu) {
  for (size_t i = 0; i < gpu.size(); ++i) {
    if (i < kGpuSpreads) {
      set_spread(metrics, kGpuMetrics[i].id, gpu[i]);
    } else if (i < kGpuSpreads + kGpuSums) {
      metrics.set(kGpuMetrics[i].id, gpu[i].sum);
    } else {
      metrics.set(Metric::kGpusThrottled, gpu[i].sum, kThrottleCauses[i - kGpuSpreads - kGpuSums]);
    }
  }
}

// Arrays of a metric's readings by layer, and by layer and part; null where there is none.
using Rows = std::vector<std::vector<double>>;

Rows rows_of(const std::vector<Reading>& readings, Metric metric) {
  constexpr double kNothing = std::numeric_limits<double>::quiet_NaN();
  Rows rows;
  for (const Reading& r : readings) {
    if (r.metric != metric) continue;
    const auto layer = static_cast<size_t>(r.layer), part = static_cast<size_t>(r.part);
    if (rows.size() <= layer) rows.resize(layer + 1);
    if (rows[layer].size() <= part) rows[layer].resize(part + 1, kNothing);
    rows[layer][part] = r.value;
  }
  return rows;
}

std::vector<double> first_column(const Rows& rows) {
  std::vector<double> column;
  for (const std::vector<double>& row : rows) {
    column.push_back(row.empty() ? std::numeric_limits<double>::quiet_NaN() : row[0]);
  }
  return column;
}

JsonLine mixture_line(const StepReport& r) {
  JsonLine line("mixture");
  line.add(Metric::kStep, static_cast<double>(r.step));
  for (const MetricSpec& spec : kMixtureMetrics) {
    const Rows rows = rows_of(r.readings, spec.id);
    if (rows.empty()) continue;
    if (spec.label == MetricLabel::kNone) {
      line.add(spec.id, rows[0][0]);
    } else if (spec.label == MetricLabel::kLayer) {
      line.add(spec.name, first_column(rows));
    } else {
      line.add(spec.name, rows);
    }
  }
  return line;
}

std::string source_of(const EvalReport& report) {
  return report.source.empty() ? "all" : report.source;
}

// Counts the time until its end as spent on recording.
class RecordingTime {
 public:
  explicit RecordingTime(Metrics& metrics) : metrics_(metrics) {}

  ~RecordingTime() {
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin_;
    metrics_.add(Metric::kRecordingSeconds, spent.count());
  }

  RecordingTime(const RecordingTime&) = delete;
  RecordingTime& operator=(const RecordingTime&) = delete;

 private:
  Metrics& metrics_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace

void MetricsSink::step(const StepReport& report) {
  const RecordingTime spent(metrics_);
  record(report);
}

void MetricsSink::eval(const EvalReport& report) {
  const RecordingTime spent(metrics_);
  record(report);
}

void MetricsSink::save(const SaveReport& report) {
  const RecordingTime spent(metrics_);
  record(report);
}

void MetricsSink::event(const std::string& kind, const std::string& text) {
  const RecordingTime spent(metrics_);
  lines_.write(JsonLine("event").add("kind", kind).add("text", text));
}

void MetricsSink::record(const StepReport& r) {
  metrics_.set(Metric::kStep, static_cast<double>(r.step));
  metrics_.set(Metric::kStepsPlanned, static_cast<double>(r.total_steps));
  metrics_.set(Metric::kTokens, static_cast<double>(r.tokens));
  metrics_.set(Metric::kLoss, r.loss);
  metrics_.set(Metric::kLearningRate, r.learning_rate);
  metrics_.set(Metric::kGradientNorm, r.grad_norm);
  metrics_.observe(Metric::kStepSeconds, r.seconds);
  metrics_.set(Metric::kLastStepTime, unix_time());
  set_spread(metrics_, Metric::kComputeSeconds, r.compute_seconds);
  metrics_.set(Metric::kSlowestRatio, r.slowest_ratio);
  set_spread(metrics_, Metric::kCommunicationWaitSeconds, r.comm_seconds);
  set_spread(metrics_, Metric::kDataWaitSeconds, r.data_seconds);
  set_spread(metrics_, Metric::kResidentMemory, r.resident_bytes);
  set_gpus(metrics_, r.gpu);
  metrics_.set(Metric::kTokensPerSecond, r.tokens_per_second);
  metrics_.set(Metric::kFlopPerSecond, r.flops_per_second);
  if (r.mfu >= 0) metrics_.set(Metric::kMfu, r.mfu);
  metrics_.add(Metric::kDataWaitTotal, r.data_seconds.max);
  set_comm(metrics_, r.comm);
  if (!r.skipped.empty()) metrics_.add(Metric::kSkippedSteps, 1, r.skipped);
  metrics_.set(Metric::kLinesLost, static_cast<double>(lines_.lost()));
  for (const Reading& figure : r.readings) {
    metrics_.set(figure.metric, figure.value, figure.layer, figure.part);
  }
  history_.step(metrics_, static_cast<double>(r.step), r.seconds);
  if (r.logged || !r.skipped.empty()) write_lines(r);
}

void MetricsSink::write_lines(const StepReport& r) {
  JsonLine line("step");
  line.add(Metric::kStep, static_cast<double>(r.step))
      .add(Metric::kTokens, static_cast<double>(r.tokens))
      .add(Metric::kLoss, r.loss)
      .add(Metric::kLearningRate, r.learning_rate)
      .add(Metric::kGradientNorm, r.grad_norm)
      .add(Metric::kStepSeconds, r.seconds)
      .add(Metric::kComputeSeconds, r.compute_seconds.median, "median")
      .add(Metric::kSlowestRatio, r.slowest_ratio)
      .add(Metric::kCommunicationWaitSeconds, r.comm_seconds.median, "median")
      .add(Metric::kDataWaitSeconds, r.data_seconds.median, "median")
      .add(Metric::kTokensPerSecond, r.tokens_per_second)
      .add(Metric::kFlopPerSecond, r.flops_per_second)
      .add(Metric::kResidentMemory, r.resident_bytes.max, "max");
  if (r.mfu >= 0) line.add(Metric::kMfu, r.mfu);
  if (!r.gpu.empty()) {
    for (const Metric metric : {Metric::kGpuUtilisation, Metric::kGpuPower}) {
      line.add(metric, spread_of(r.gpu, metric).median, "median");
    }
    for (const Metric metric : {Metric::kGpuMemoryUsed, Metric::kGpuTemperature}) {
      line.add(metric, spread_of(r.gpu, metric).max, "max");
    }
  }
  const Rows auxiliary = rows_of(r.readings, Metric::kAuxiliaryLoss);
  if (!auxiliary.empty()) line.add(Metric::kAuxiliaryLoss, auxiliary[0][0]);
  if (!r.skipped.empty()) line.add("skipped", r.skipped);
  lines_.write(line);
  if (!r.readings.empty()) lines_.write(mixture_line(r));
}

void MetricsSink::record(const EvalReport& r) {
  const std::string source = source_of(r);
  metrics_.add(Metric::kValidationTotal, r.seconds);
  history_.validation(static_cast<double>(r.step),
                      r.looks_ahead ? Metric::kValidationLossLookingAhead : Metric::kValidationLoss,
                      source, r.loss);
  if (r.looks_ahead) {
    metrics_.set(Metric::kValidationLossLookingAhead, r.loss, source);
    lines_.write(JsonLine("eval")
                     .add(Metric::kStep, static_cast<double>(r.step))
                     .add("looks_ahead", true)
                     .add("source", source)
                     .add(Metric::kValidationLossLookingAhead, r.loss)
                     .add("tokens", static_cast<double>(r.tokens))
                     .add("seconds", r.seconds));
    return;
  }
  metrics_.set(Metric::kValidationLoss, r.loss, source);
  metrics_.set(Metric::kValidationPerplexity, r.perplexity, source);
  metrics_.set(Metric::kBitsPerByte, r.bits_per_byte, source);
  lines_.write(JsonLine("eval")
                   .add(Metric::kStep, static_cast<double>(r.step))
                   .add("source", source)
                   .add(Metric::kValidationLoss, r.loss)
                   .add(Metric::kValidationPerplexity, r.perplexity)
                   .add(Metric::kBitsPerByte, r.bits_per_byte)
                   .add("tokens", static_cast<double>(r.tokens))
                   .add("seconds", r.seconds));
}

void MetricsSink::record(const SaveReport& r) {
  JsonLine line("save");
  line.add(Metric::kStep, static_cast<double>(r.step));
  metrics_.add(Metric::kCheckpointPauseTotal, r.stall_seconds);
  if (r.ok) {
    metrics_.set(Metric::kCheckpointStep, static_cast<double>(r.step));
    metrics_.set(Metric::kCheckpointTime, unix_time());
    metrics_.set(Metric::kCheckpointSeconds, r.write_seconds);
    metrics_.set(Metric::kCheckpointPauseSeconds, r.stall_seconds);
    metrics_.set(Metric::kCheckpointBytes, static_cast<double>(r.bytes));
    line.add(Metric::kCheckpointSeconds, r.write_seconds)
        .add(Metric::kCheckpointPauseSeconds, r.stall_seconds)
        .add(Metric::kCheckpointBytes, static_cast<double>(r.bytes));
  } else {
    metrics_.add(Metric::kCheckpointFailures, 1);
    line.add("error", r.error);
  }
  lines_.write(line);
}

}  // namespace anabranch
