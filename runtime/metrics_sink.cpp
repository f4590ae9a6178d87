#include "runtime/metrics_sink.h"

#include <chrono>

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

std::string source_of(const EvalReport& report) {
  return report.source.empty() ? "all" : report.source;
}

}  // namespace

void MetricsSink::step(const StepReport& r) {
  metrics_.set(Metric::kStep, static_cast<double>(r.step));
  metrics_.set(Metric::kStepsPlanned, static_cast<double>(r.total_steps));
  metrics_.set(Metric::kTokens, static_cast<double>(r.tokens));
  metrics_.set(Metric::kLoss, r.loss);
  metrics_.set(Metric::kLearningRate, r.learning_rate);
  metrics_.set(Metric::kGradientNorm, r.grad_norm);
  metrics_.observe(Metric::kStepSeconds, r.seconds);
  metrics_.set(Metric::kLastStepTime, unix_time());
  set_spread(metrics_, Metric::kComputeSeconds, r.compute_seconds);
  set_spread(metrics_, Metric::kCommunicationWaitSeconds, r.comm_seconds);
  set_spread(metrics_, Metric::kDataWaitSeconds, r.data_seconds);
  set_spread(metrics_, Metric::kResidentMemory, r.resident_bytes);
  metrics_.set(Metric::kTokensPerSecond, r.tokens_per_second);
  metrics_.set(Metric::kFlopPerSecond, r.flops_per_second);
  if (r.mfu >= 0) metrics_.set(Metric::kMfu, r.mfu);
  metrics_.add(Metric::kDataWaitTotal, r.data_seconds.max);
  set_comm(metrics_, r.comm);
  if (!r.skipped.empty()) metrics_.add(Metric::kSkippedSteps, 1, r.skipped);
  metrics_.set(Metric::kLinesLost, static_cast<double>(lines_.lost()));
  if (!r.logged && r.skipped.empty()) return;
  JsonLine line("step");
  line.add(Metric::kStep, static_cast<double>(r.step))
      .add(Metric::kTokens, static_cast<double>(r.tokens))
      .add(Metric::kLoss, r.loss)
      .add(Metric::kLearningRate, r.learning_rate)
      .add(Metric::kGradientNorm, r.grad_norm)
      .add(Metric::kStepSeconds, r.seconds)
      .add(Metric::kComputeSeconds, r.compute_seconds.median, "median")
      .add(Metric::kCommunicationWaitSeconds, r.comm_seconds.median, "median")
      .add(Metric::kDataWaitSeconds, r.data_seconds.median, "median")
      .add(Metric::kTokensPerSecond, r.tokens_per_second)
      .add(Metric::kFlopPerSecond, r.flops_per_second)
      .add(Metric::kResidentMemory, r.resident_bytes.max, "max");
  if (r.mfu >= 0) line.add(Metric::kMfu, r.mfu);
  if (!r.skipped.empty()) line.add("skipped", r.skipped);
  lines_.write(line);
}

void MetricsSink::eval(const EvalReport& r) {
  const std::string source = source_of(r);
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

void MetricsSink::save(const SaveReport& r) {
  JsonLine line("save");
  line.add(Metric::kStep, static_cast<double>(r.step));
  if (r.ok) {
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

void MetricsSink::event(const std::string& kind, const std::string& text) {
  lines_.write(JsonLine("event").add("kind", kind).add("text", text));
}

}  // namespace anabranch
