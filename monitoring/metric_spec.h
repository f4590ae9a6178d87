// Names, types and labels of metrics: what a line of the table says.
#pragma once

#include <cstdint>

namespace anabranch {

enum class MetricType : uint8_t { kCounter, kGauge, kHistogram };

// What a metric has a series for each of.
enum class MetricLabel : uint8_t {
  kNone,
  kStat,
  kCollective,
  kReason,
  kSource,
  kCause,
  kLayer,   // of the model
  kStream,  // of a layer: two labels, layer and stream
  kExpert,  // of a layer, likewise
  kExperts  // how many experts, from 0 on
};

// In the order of kMetrics.
enum class Metric : uint8_t {
  kRanks,
  kStep,
  kStepsPlanned,
  kSweepRuns,
  kTokens,
  kLoss,
  kValidationLoss,
  kValidationPerplexity,
  kBitsPerByte,
  kValidationTotal,
  kLearningRate,
  kGradientNorm,
  kStepSeconds,
  kLastStepTime,
  kComputeSeconds,
  kSlowestRatio,
  kCommunicationWaitSeconds,
  kDataWaitSeconds,
  kTokensPerSecond,
  kFlopPerSecond,
  kMfu,
  kCommunicationBytes,
  kCommunicationSeconds,
  kDataWaitTotal,
  kCheckpointEvery,
  kCheckpointStep,
  kCheckpointTime,
  kCheckpointSeconds,
  kCheckpointPauseSeconds,
  kCheckpointPauseTotal,
  kCheckpointBytes,
  kCheckpointFailures,
  kSkippedSteps,
  kResidentMemory,
  kLinesLost,
  kDiskFree,
  kDiskFreeFiles,
  kRecordingSeconds,
  kGpuUtilisation,  // the first of kGpuMetrics
  kGpuMemoryUsed,
  kGpuMemory,
  kGpuPower,
  kGpuTemperature,
  kGpuClock,
  kGpuMemoryClock,
  kGpuPcieSent,
  kGpuPcieReceived,
  kGpuNvlinkSent,
  kGpuNvlinkReceived,
  kGpuEccCorrected,
  kGpuEccUncorrected,
  kGpuXid,
  kGpusThrottled,
  kAuxiliaryLoss,  // the first of kMixtureMetrics
  kValidationLossLookingAhead,
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
  kExpertOverlap,
  kExpertsOfToken,
  kMaskedTokens,
  kRouterEntropy,
  kRouterGateCosine,
  kRouterGateAlignment,
  kInducedBiasLow,
  kInducedBiasMedian,
  kInducedBiasHigh,
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

}  // namespace anabranch
