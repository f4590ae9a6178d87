// The words of keys that only some families have.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "core/ops/expert_choice.h"
#include "core/ops/expert_rows.h"
#include "core/ops/router_z_loss.h"
#include "core/ops/stream_linear.h"

namespace anabranch {

// Each enum's values count from 0 in the order of its words.
enum class StreamMode : uint8_t { kFfn, kPipeline };
enum class GateVariant : uint8_t { kLinear, kSimple, kContextAware, kMultiHead, kAdaptive };
enum class GateSite : uint8_t { kAuto, kRouter, kFeature };
enum class HeadInput : uint8_t { kFull, kSlice };
enum class GateContext : uint8_t { kPrefixMean, kEma, kGlobal };
enum class BalanceScope : uint8_t { kSequence, kBatch };
enum class MixPoint : uint8_t { kPre, kPost };
enum class Aggregator : uint8_t { kMlp, kLinear };
enum class BlockChoice : uint8_t { kAlternating, kSame };
enum class Selection : uint8_t { kEcBatch, kEcSeq, kThreshold, kPredictor, kTokenChoice };
enum class Compat : uint8_t { kNone, kReference };
enum class SegmentScope : uint8_t { kSequence, kPool };
enum class FfnRound : uint8_t { kNearest, kCeil };
enum class MaskTarget : uint8_t { kNext, kSame };

constexpr auto words_of(StreamMode) { return std::array<std::string_view, 2>{"ffn", "pipeline"}; }

constexpr auto words_of(GateVariant) {
  return std::array<std::string_view, 5>{"linear", "simple", "context_aware", "multi_head",
                                         "adaptive"};
}

constexpr auto words_of(GateSite) {
  return std::array<std::string_view, 3>{"auto", "router", "feature"};
}

constexpr auto words_of(HeadInput) { return std::array<std::string_view, 2>{"full", "slice"}; }

constexpr auto words_of(GateContext) {
  return std::array<std::string_view, 3>{"prefix_mean", "ema", "global"};
}

constexpr auto words_of(BalanceScope) {
  return std::array<std::string_view, 2>{"sequence", "batch"};
}

constexpr auto words_of(MixPoint) { return std::array<std::string_view, 2>{"pre", "post"}; }

constexpr auto words_of(MixOrder) { return std::array<std::string_view, 2>{"scaled", "branch"}; }

constexpr auto words_of(Aggregator) { return std::array<std::string_view, 2>{"mlp", "linear"}; }

constexpr auto words_of(BlockChoice) {
  return std::array<std::string_view, 2>{"alternating", "same"};
}

constexpr auto words_of(Selection) {
  return std::array<std::string_view, 5>{"ec_batch", "ec_seq", "threshold", "predictor",
                                         "token_choice"};
}

constexpr auto words_of(SlotOrder) { return std::array<std::string_view, 2>{"time", "affinity"}; }

constexpr auto words_of(Compat) { return std::array<std::string_view, 2>{"none", "reference"}; }

constexpr auto words_of(SegmentScope) {
  return std::array<std::string_view, 2>{"sequence", "pool"};
}

constexpr auto words_of(SlotPosition) {
  return std::array<std::string_view, 2>{"original", "compact"};
}

constexpr auto words_of(FfnRound) { return std::array<std::string_view, 2>{"nearest", "ceil"}; }

constexpr auto words_of(MaskTarget) { return std::array<std::string_view, 2>{"next", "same"}; }

constexpr auto words_of(ZLossForm) { return std::array<std::string_view, 2>{"plain", "demeaned"}; }

}  // namespace anabranch
