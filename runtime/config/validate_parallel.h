// The rules that tie the layout over ranks to the model.
#pragma once

#include <string>
#include <vector>

#include "runtime/config/config.h"

namespace anabranch {

// What of a model can lie on different ranks.
struct SplitLimit {
  int64_t parts = 1;             // the largest parallel.model
  std::string what = "no part";  // "model.experts"
};

SplitLimit split_limit(const Config& config);

// The values of parallel.model that go with the model on so many ranks, rising; 1 is the first.
[[nodiscard]] std::vector<int> legal_model_sizes(const Config& config, int ranks);

// Throws Error (config), with the numbers and the nearest legal values, unless the batch, the pool
// and parallel.model go with so many ranks.
void check_ranks(const Config& config, int ranks);

// Whether the model has streams whose sums come home: layers of kernels that are mixed.
[[nodiscard]] bool has_streams(const ModelConfig& model);

// Copies of its input that the model runs, whole streams that can lie on several ranks; 1: it runs
// the input itself.
[[nodiscard]] int64_t input_copies(const ModelConfig& model);

// How the streams of the configured model lie over `model` ranks, if their sums come home.
[[nodiscard]] StreamLayoutChoice stream_layout(const Config& config, int64_t model);

// Sequences that are one pool of tokens, for experts and their balance.
[[nodiscard]] int64_t pool_sequences(const ModelConfig& model);

// The broken rules of the parallel section, a line each, with their numbers.
std::vector<std::string> check_parallel(const Config& config);

}  // namespace anabranch
