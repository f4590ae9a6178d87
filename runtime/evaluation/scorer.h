// How likely a model finds given text: the losses of chosen tokens of many sequences, of which
// several may begin alike. What every task that is scored, not sampled, comes down to.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "runtime/models/model.h"

namespace anabranch {

// A sequence of which tokens [begin, end) are scored, each given all before it; 1 <= begin <= end.
struct ScoredText {
  std::vector<int32_t> tokens;
  int64_t begin = 1, end = 1;
  bool cut = false;  // it has lost its beginning already
};

// Sequences that are compared, such as one question with each of its answers. What they begin with
// alike is computed once.
using ScoreItem = std::vector<ScoredText>;

// Of the tokens scored.
struct TextScore {
  double nats = 0;     // sum of their negative log-likelihoods
  int64_t tokens = 0;  // how many
  bool greedy = true;  // whether each of them is the likeliest token; of equals the lower id is

  // Not-a-number if no token is scored.
  [[nodiscard]] double mean() const;
};

struct ScorerOptions {
  int64_t batch_tokens = 8192;  // of the sequences that are computed side by side, padding included
  bool greedy = false;          // whether TextScore::greedy is wanted
  bool share = true;            // false: every sequence is computed whole
};

// What scoring took.
struct ScorerCounts {
  int64_t tokens = 0;     // of all sequences, after they were cut
  int64_t computed = 0;   // that went through the model, padding not included
  int64_t padding = 0;    // computed for nothing
  int64_t truncated = 0;  // sequences that lost their beginning
};

// Throws Error (config) if the model gives no token a likelihood by what comes before it alone.
void check_causal(const Model& model);

// Scores items on one device. A sequence of more tokens than the model's context and one, its last,
// loses its beginning; what is scored of it must remain.
class Scorer {
 public:
  // Keeps a reference to the model.
  Scorer(Model& model, const ScorerOptions& options) : model_(model), options_(options) {}

  // The scores of each item's sequences, in the order given. Items are computed in batches of like
  // length; an item's scores do not depend on the others but for rounding.
  //
  //   progress  told how many items are done; may be empty
  //
  // Throws Error (config) as check_causal() does, (data) if a token is none of the model's, or what
  // is scored does not lie in its sequence or does not fit the context.
  std::vector<std::vector<TextScore>> score(std::span<const ScoreItem> items,
                                            const std::function<void(size_t)>& progress = {});

  [[nodiscard]] const ScorerCounts& counts() const { return counts_; }

 private:
  struct Batch;

  [[nodiscard]] ScoreItem cut(const ScoreItem& item);
  // The state of each sequence of a batch after what its item has in common.
  [[nodiscard]] DecodeState begun(const Batch& batch);
  void score(const Batch& batch);

  Model& model_;
  ScorerOptions options_;
  ScorerCounts counts_;
};

}  // namespace anabranch
