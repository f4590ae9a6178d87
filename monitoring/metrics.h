// The one table of all metrics, and the object that holds a job's values.
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

namespace anabranch {

enum class MetricType : uint8_t { kCounter, kGauge, kHistogram };

// Which values a metric's one label takes.
enum class MetricLabel : uint8_t {
  kNone,
  kStat,
  kCollective,
  kReason,
  kSource,
  kLayer,   // of the model
  kStream,  // of a layer; two labels, layer and stream, given as "layer/stream"
  kExpert   // of a layer, likewise
};

// In the order of kMetrics.
enum class Metric : uint8_t {
  kRanks,
  kStep,
  kStepsPlanned,
  kTokens,
  kLoss,
  kValidationLoss,
  kValidationPerplexity,
  kBitsPerByte,
  kLearningRate,
  kGradientNorm,
  kStepSeconds,
  kLastStepTime,
  kComputeSeconds,
  kCommunicationWaitSeconds,
  kDataWaitSeconds,
  kTokensPerSecond,
  kFlopPerSecond,
  kMfu,
  kCommunicationBytes,
  kCommunicationSeconds,
  kDataWaitTotal,
  kCheckpointTime,
  kCheckpointSeconds,
  kCheckpointPauseSeconds,
  kCheckpointBytes,
  kCheckpointFailures,
  kSkippedSteps,
  kResidentMemory,
  kLinesLost,
  kAuxiliaryLoss,
  kStreamLoad,
  kStreamShare,
  kEffectiveStreams,
  kGateSharpness,
  kGateSpecialisation,
  kLoadVariation,
  kLoadViolation,
  kDeadStreams,
  kKernelSimilarity,
  kBranchSimilarity,
  kStreamGradientRatio,
  kExpertLoad,
  kExpertDrops,
  kUnselectedTokens,
  kExpertThreshold,
  kRouterEntropy,
  kRouterGateCosine,
  kKappaMedian,
  kKappaLow,
  kKappaHigh,
  kPositiveAlpha,
  kPositiveB
};

struct MetricSpec {
  Metric id;
  const char* name;  // in metrics.jsonl; scraped as "anabranch_<name>"
  MetricType type;
  MetricLabel label;
  const char* help;
};

inline constexpr std::array kMetrics{
    MetricSpec{Metric::kRanks, "ranks", MetricType::kGauge, MetricLabel::kNone,
               "Ranks of the job."},
    MetricSpec{Metric::kStep, "step", MetricType::kGauge, MetricLabel::kNone,
               "Optimizer steps taken since the start of the run."},
    MetricSpec{Metric::kStepsPlanned, "steps_planned", MetricType::kGauge, MetricLabel::kNone,
               "Optimizer steps of the whole run."},
    MetricSpec{Metric::kTokens, "tokens_total", MetricType::kCounter, MetricLabel::kNone,
               "Tokens trained on since the start of the run, over all ranks."},
    MetricSpec{Metric::kLoss, "loss", MetricType::kGauge, MetricLabel::kNone,
               "Training loss of the last step in nats per token."},
    MetricSpec{Metric::kValidationLoss, "validation_loss", MetricType::kGauge, MetricLabel::kSource,
               "Validation loss in nats per token."},
    MetricSpec{Metric::kValidationPerplexity, "validation_perplexity", MetricType::kGauge,
               MetricLabel::kSource, "Validation perplexity per token."},
    MetricSpec{Metric::kBitsPerByte, "validation_bpb", MetricType::kGauge, MetricLabel::kSource,
               "Validation loss in bits per byte of text."},
    MetricSpec{Metric::kLearningRate, "learning_rate", MetricType::kGauge, MetricLabel::kNone,
               "Learning rate of the last step."},
    MetricSpec{Metric::kGradientNorm, "gradient_norm", MetricType::kGauge, MetricLabel::kNone,
               "Norm of the whole gradient before clipping."},
    MetricSpec{Metric::kStepSeconds, "step_seconds", MetricType::kHistogram, MetricLabel::kNone,
               "Wall time of an optimizer step."},
    MetricSpec{Metric::kLastStepTime, "last_step_timestamp_seconds", MetricType::kGauge,
               MetricLabel::kNone, "Unix time at which the last step ended."},
    MetricSpec{Metric::kComputeSeconds, "compute_seconds", MetricType::kGauge, MetricLabel::kStat,
               "Time of the last step spent computing, over ranks."},
    MetricSpec{Metric::kCommunicationWaitSeconds, "communication_wait_seconds", MetricType::kGauge,
               MetricLabel::kStat,
               "Time of the last step spent waiting for other ranks, over ranks."},
    MetricSpec{Metric::kDataWaitSeconds, "data_wait_seconds", MetricType::kGauge,
               MetricLabel::kStat,
               "Time of the last step spent waiting for the loader, over ranks."},
    MetricSpec{Metric::kTokensPerSecond, "tokens_per_second", MetricType::kGauge,
               MetricLabel::kNone, "Tokens trained on per second, over all ranks."},
    MetricSpec{Metric::kFlopPerSecond, "flop_per_second", MetricType::kGauge, MetricLabel::kNone,
               "Model FLOP per second, over all ranks."},
    MetricSpec{Metric::kMfu, "mfu_ratio", MetricType::kGauge, MetricLabel::kNone,
               "Model FLOP per second over the stated peak."},
    MetricSpec{Metric::kCommunicationBytes, "communication_bytes_total", MetricType::kCounter,
               MetricLabel::kCollective, "Bytes handed to collectives by rank 0."},
    MetricSpec{Metric::kCommunicationSeconds, "communication_seconds_total", MetricType::kCounter,
               MetricLabel::kCollective,
               "Time that collectives of rank 0 were under way, hidden or not."},
    MetricSpec{Metric::kDataWaitTotal, "data_wait_seconds_total", MetricType::kCounter,
               MetricLabel::kNone,
               "Time that the slowest rank of each step waited for the loader."},
    MetricSpec{Metric::kCheckpointTime, "checkpoint_last_success_timestamp_seconds",
               MetricType::kGauge, MetricLabel::kNone,
               "Unix time of the newest complete checkpoint."},
    MetricSpec{Metric::kCheckpointSeconds, "checkpoint_duration_seconds", MetricType::kGauge,
               MetricLabel::kNone,
               "Time that rank 0 took to write its part of the last save, beside training."},
    MetricSpec{Metric::kCheckpointPauseSeconds, "checkpoint_pause_seconds", MetricType::kGauge,
               MetricLabel::kNone, "Time that the last save held up training."},
    MetricSpec{Metric::kCheckpointBytes, "checkpoint_bytes", MetricType::kGauge, MetricLabel::kNone,
               "Bytes that rank 0 wrote of the newest complete checkpoint."},
    MetricSpec{Metric::kCheckpointFailures, "checkpoint_failures_total", MetricType::kCounter,
               MetricLabel::kNone, "Saves that failed."},
    MetricSpec{Metric::kSkippedSteps, "skipped_steps_total", MetricType::kCounter,
               MetricLabel::kReason, "Steps whose update was not applied."},
    MetricSpec{Metric::kResidentMemory, "resident_memory_bytes", MetricType::kGauge,
               MetricLabel::kStat, "Resident memory of a process, over ranks."},
    MetricSpec{Metric::kLinesLost, "metrics_lines_lost_total", MetricType::kCounter,
               MetricLabel::kNone, "Lines that could not be written to metrics.jsonl."},
    MetricSpec{Metric::kAuxiliaryLoss, "auxiliary_loss", MetricType::kGauge, MetricLabel::kNone,
               "Sum of the weighted auxiliary losses of the last step."},
    MetricSpec{Metric::kStreamLoad, "stream_load", MetricType::kGauge, MetricLabel::kStream,
               "Mean gate of a stream; 1/N when all carry the same."},
    MetricSpec{Metric::kStreamShare, "stream_share", MetricType::kGauge, MetricLabel::kStream,
               "Share of tokens whose largest gate is the stream."},
    MetricSpec{Metric::kEffectiveStreams, "effective_streams", MetricType::kGauge,
               MetricLabel::kLayer, "exp of the entropy of the loads."},
    MetricSpec{Metric::kGateSharpness, "gate_sharpness", MetricType::kGauge, MetricLabel::kLayer,
               "Mean entropy of a token's gates over ln N; 0 is one-hot."},
    MetricSpec{Metric::kGateSpecialisation, "gate_specialisation", MetricType::kGauge,
               MetricLabel::kLayer,
               "Entropy of the loads less the mean entropy of the gates, in nats."},
    MetricSpec{Metric::kLoadVariation, "load_variation", MetricType::kGauge, MetricLabel::kLayer,
               "Squared coefficient of variation of the loads."},
    MetricSpec{Metric::kLoadViolation, "load_violation", MetricType::kGauge, MetricLabel::kLayer,
               "Largest load over the even one, less 1."},
    MetricSpec{Metric::kDeadStreams, "dead_streams", MetricType::kGauge, MetricLabel::kLayer,
               "Streams below a tenth of the even load for 1000 steps."},
    MetricSpec{Metric::kKernelSimilarity, "kernel_similarity", MetricType::kGauge,
               MetricLabel::kLayer, "Mean pairwise cosine of the streams' kernels."},
    MetricSpec{Metric::kBranchSimilarity, "branch_similarity", MetricType::kGauge,
               MetricLabel::kLayer, "Mean pairwise cosine of the streams' outputs on some tokens."},
    MetricSpec{Metric::kStreamGradientRatio, "stream_gradient_ratio", MetricType::kGauge,
               MetricLabel::kLayer, "Smallest over largest gradient norm of the streams' kernels."},
    MetricSpec{Metric::kExpertLoad, "expert_load", MetricType::kGauge, MetricLabel::kExpert,
               "Share of slots that an expert has."},
    MetricSpec{Metric::kExpertDrops, "expert_drops", MetricType::kGauge, MetricLabel::kLayer,
               "Share of choices dropped for capacity."},
    MetricSpec{Metric::kUnselectedTokens, "unselected_tokens", MetricType::kGauge,
               MetricLabel::kLayer, "Share of tokens that no expert took."},
    MetricSpec{Metric::kExpertThreshold, "expert_threshold", MetricType::kGauge,
               MetricLabel::kExpert, "Moving k-th score of an expert."},
    MetricSpec{Metric::kRouterEntropy, "router_entropy", MetricType::kGauge, MetricLabel::kLayer,
               "Mean entropy of the router over ln E."},
    MetricSpec{Metric::kRouterGateCosine, "router_gate_cosine", MetricType::kGauge,
               MetricLabel::kLayer,
               "Mean cosine of router rows and their experts' mean gate rows."},
    MetricSpec{Metric::kKappaMedian, "kappa_median", MetricType::kGauge, MetricLabel::kLayer,
               "Median of kappa over tokens and channels."},
    MetricSpec{Metric::kKappaLow, "kappa_low", MetricType::kGauge, MetricLabel::kLayer,
               "5th percentile of kappa."},
    MetricSpec{Metric::kKappaHigh, "kappa_high", MetricType::kGauge, MetricLabel::kLayer,
               "95th percentile of kappa."},
    MetricSpec{Metric::kPositiveAlpha, "positive_alpha", MetricType::kGauge, MetricLabel::kLayer,
               "Mean of the positive elements of alpha."},
    MetricSpec{Metric::kPositiveB, "positive_b", MetricType::kGauge, MetricLabel::kLayer,
               "Mean of the positive elements of b."},
};

constexpr const MetricSpec& spec_of(Metric metric) { return kMetrics[static_cast<size_t>(metric)]; }

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
  explicit Metrics(Labels info, std::vector<std::string> sources = {"all"});

  // A gauge's value, or a counter's total. `label` must be a value of the metric's label.
  // Throws Error (internal) if it is not.
  void set(Metric metric, double value, std::string_view label = {});
  // Adds to a counter.
  void add(Metric metric, double amount, std::string_view label = {});
  // Counts a value in a histogram.
  void observe(Metric metric, double value);

  [[nodiscard]] double value(Metric metric, std::string_view label = {}) const;

  // A metric's series with their present values; of a histogram, cumulative counts by upper bound.
  struct Series {
    std::string_view label;
    double value = 0;  // of a histogram: the sum
    std::vector<uint64_t> buckets;
  };

  [[nodiscard]] std::vector<Series> read(Metric metric) const;

  [[nodiscard]] const Labels& info() const { return info_; }

  // All metrics in the Prometheus text format.
  [[nodiscard]] std::string text() const;

  // Upper bounds of step_seconds' buckets, in seconds; the last is infinity.
  static std::vector<double> bounds();

 private:
  [[nodiscard]] const std::vector<std::string>& labels_of(Metric metric) const;
  [[nodiscard]] size_t cell_of(Metric metric, std::string_view label) const;

  Labels info_;
  std::array<std::vector<std::string>, 8> labels_;    // by MetricLabel
  std::array<size_t, kMetrics.size()> first_cell_{};  // by Metric
  std::unique_ptr<std::atomic<double>[]> cells_;
  std::vector<std::atomic<uint64_t>> buckets_;  // not cumulative
};

}  // namespace anabranch
