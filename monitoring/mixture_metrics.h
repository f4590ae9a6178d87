// The part of the table that only runs of mixtures have: figures by layer, stream and expert.
#pragma once

#include <array>

#include "monitoring/metric_spec.h"

namespace anabranch {

inline constexpr std::array kMixtureMetrics{
    MetricSpec{Metric::kAuxiliaryLoss, "auxiliary_loss", MetricType::kGauge, MetricLabel::kNone,
               "Sum of the weighted auxiliary losses of the last step."},
    MetricSpec{Metric::kValidationLossLookingAhead, "validation_loss_looking_ahead",
               MetricType::kGauge, MetricLabel::kSource,
               "Validation loss in nats per token, routed by what comes later too."},
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
    MetricSpec{Metric::kPositiveB, "positive_bias", MetricType::kGauge, MetricLabel::kLayer,
               "Mean of the positive elements of b."},
};

}  // namespace anabranch
