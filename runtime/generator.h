// Sampling from a model, with a key-value cache.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "runtime/models/model.h"

namespace anabranch {

struct SamplingOptions {
  int64_t max_tokens = 64;  // new tokens per prompt
  double temperature = 1;   // 0: always the most likely token
  int64_t top_k = 0;        // sample among the k most likely; 0: all
  double top_p = 1;         // ... whose probabilities add up to p
  uint64_t seed = 1;
  int32_t stop_token = -1;  // ends a sequence; -1: none
};

// Continues each prompt. Sequences that outgrow the model's context go on from its latest half, in
// a new cache. A sequence's tokens depend on its prompt, the seed and its index alone. On a GPU the
// host waits once for the logits of all sequences' next tokens, and samples from them.
//
//   prompts    one token list a sequence, none empty
//   on_token   told each new token of sequence i as it comes; may be empty
//   ends       asked of all new tokens of sequence i whether it ends with them; may be empty
//
// Returns the new tokens of each sequence, the stop token not included.
// Throws Error (usage, 64) for an empty prompt or options out of range.
std::vector<std::vector<int32_t>> generate(
    Model& model, const std::vector<std::vector<int32_t>>& prompts, const SamplingOptions& options,
    const std::function<void(size_t sequence, int32_t token)>& on_token = {},
    const std::function<bool(size_t sequence, std::span<const int32_t> output)>& ends = {});

// Picks a token from logits by temperature, top-k and top-p.
//
//   logits   [V]
//   uniform  in [0, 1): what decides among the candidates
//
// The candidates lie on [0, 1) from the likeliest on, as long as their probabilities; of equal ones
// the lower token comes first. Takes time in proportion to V.
int32_t sample(std::span<const float> logits, const SamplingOptions& options, double uniform);

}  // namespace anabranch
