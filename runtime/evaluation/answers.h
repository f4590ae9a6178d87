// Answers to what lm-evaluation-harness asks of a model, of any family.
//
// Texts become tokens as its Hugging Face models have them: context and continuation are encoded
// together, the white space that the context ends with belongs to the continuation, and what has
// nothing before it follows the token that begins a document. Too long a context loses its
// beginning. A rolling text is cut into windows of the model's context, each predicting what the
// one before did not reach.
//
// Source: lm-evaluation-harness 0.4, models/huggingface.py, utils.get_rolling_token_windows.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "data/tokenizer/tokenizer.h"
#include "runtime/evaluation/requests.h"
#include "runtime/evaluation/scorer.h"

namespace anabranch {

struct AnswerOptions {
  int64_t batch_tokens = 8192;  // as ScorerOptions
  bool begin = false;           // every text follows the token that begins a document
};

struct Answer {
  double logprob = 0;   // nats, of all tokens scored
  bool greedy = false;  // whether each of them is the likeliest, of a loglikelihood
  int64_t tokens = 0;   // scored or generated
  std::string text;     // generated, up to the first text that ends it
};

// Answers requests on one device.
class Answerer {
 public:
  // Keeps references.
  Answerer(Model& model, const Tokenizer& tokenizer, const AnswerOptions& options)
      : model_(model), tokenizer_(tokenizer), options_(options) {}

  // Throws Error (data), naming file and line, if the request cannot be answered: its continuation
  // has more tokens than the model's context.
  void check(const Request& request) const;

  // In the order given. Loglikelihoods that follow each other and have one context compute it once.
  // Throws Error (data) as check() does, and for losses that are not finite.
  std::vector<Answer> answer(std::span<const Request* const> requests);

 private:
  using Places = std::vector<size_t>;  // of requests

  [[nodiscard]] std::vector<int32_t> encode(std::string_view text) const;
  [[nodiscard]] int32_t beginning() const;
  [[nodiscard]] ScoredText pair(const Request& request) const;
  [[nodiscard]] std::vector<ScoredText> windows(const Request& request) const;
  [[nodiscard]] std::vector<int32_t> prompt(const Request& request) const;
  // Scores items, of each the sequences of the requests in `asked`.
  void score(std::span<const Request* const> requests, const std::vector<Places>& asked,
             const std::vector<ScoreItem>& items, bool greedy, std::vector<Answer>& answers);
  void generate(std::span<const Request* const> requests, const Places& asked,
                std::vector<Answer>& answers);

  Model& model_;
  const Tokenizer& tokenizer_;
  AnswerOptions options_;
};

}  // namespace anabranch
