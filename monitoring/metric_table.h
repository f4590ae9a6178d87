// The one table of all metrics: those of every run, of runs on GPUs, and of mixtures.
#pragma once

#include <array>
#include <cstddef>

#include "monitoring/gpu_metrics.h"
#include "monitoring/metric_spec.h"
#include "monitoring/mixture_metrics.h"

namespace anabranch {

inline constexpr std::array kRunMetrics{
    MetricSpec{Metric::kRanks, "ranks", MetricType::kGauge, MetricLabel::kNone,
               "Ranks of the job."},
    MetricSpec{Metric::kStep, "step", MetricType::kGauge, MetricLabel::kNone,
               "Optimizer steps taken since the start of the run."},
    MetricSpec{Metric::kStepsPlanned, "steps_planned", MetricType::kGauge, MetricLabel::kNone,
               "Optimizer steps of the whole run."},
    MetricSpec{Metric::kSweepRuns, "sweep_runs", MetricType::kGauge, MetricLabel::kNone,
               "Runs of the sweep that this run is one of; 0 if it is of none."},
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
    MetricSpec{Metric::kValidationTotal, "validation_seconds_total", MetricType::kCounter,
               MetricLabel::kNone, "Time that validations held up training."},
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
    MetricSpec{
        Metric::kSlowestRatio, "compute_slowest_ratio", MetricType::kGauge, MetricLabel::kNone,
        "Time that the slowest rank computed over the last logged steps, over the median's."},
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
    MetricSpec{Metric::kCheckpointEvery, "checkpoint_every_steps", MetricType::kGauge,
               MetricLabel::kNone, "Steps between saves; 0: at the end only."},
    MetricSpec{Metric::kCheckpointStep, "checkpoint_step", MetricType::kGauge, MetricLabel::kNone,
               "Step of the newest complete checkpoint."},
    MetricSpec{Metric::kCheckpointTime, "checkpoint_last_success_timestamp_seconds",
               MetricType::kGauge, MetricLabel::kNone,
               "Unix time of the newest complete checkpoint."},
    MetricSpec{Metric::kCheckpointSeconds, "checkpoint_duration_seconds", MetricType::kGauge,
               MetricLabel::kNone,
               "Time that rank 0 took to write its part of the last save, beside training."},
    MetricSpec{Metric::kCheckpointPauseSeconds, "checkpoint_pause_seconds", MetricType::kGauge,
               MetricLabel::kNone, "Time that the last save held up training."},
    MetricSpec{Metric::kCheckpointPauseTotal, "checkpoint_pause_seconds_total",
               MetricType::kCounter, MetricLabel::kNone, "Time that saves held up training."},
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
    MetricSpec{Metric::kDiskFree, "disk_free_bytes", MetricType::kGauge, MetricLabel::kNone,
               "Room that is left where the run directory lies."},
    MetricSpec{Metric::kDiskFreeFiles, "disk_free_inodes", MetricType::kGauge, MetricLabel::kNone,
               "Files that there is room for where the run directory lies."},
    MetricSpec{Metric::kRecordingSeconds, "recording_seconds_total", MetricType::kCounter,
               MetricLabel::kNone,
               "Time that training spent in recording its metrics, lines and history."},
};

// In the order of Metric.
inline constexpr auto kMetrics = [] {
  std::array<MetricSpec, kRunMetrics.size() + kGpuMetrics.size() + kMixtureMetrics.size()> all{};
  size_t place = 0;
  for (const MetricSpec& spec : kRunMetrics) all[place++] = spec;
  for (const MetricSpec& spec : kGpuMetrics) all[place++] = spec;
  for (const MetricSpec& spec : kMixtureMetrics) all[place++] = spec;
  return all;
}();

constexpr const MetricSpec& spec_of(Metric metric) { return kMetrics[static_cast<size_t>(metric)]; }

constexpr bool is_of_mixtures(Metric metric) {
  return static_cast<size_t>(metric) >= kRunMetrics.size() + kGpuMetrics.size();
}

constexpr bool is_of_gpus(Metric metric) {
  return static_cast<size_t>(metric) >= kRunMetrics.size() && !is_of_mixtures(metric);
}

}  // namespace anabranch
