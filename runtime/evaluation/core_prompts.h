// What a model is asked in the CORE suite, as text and as tokens.
//
// Source: nanochat's core_eval; its behaviour is copied to the byte, as its figures are compared,
// but for two things: prompts longer than the context lose their beginning, where its own model
// takes them whole; and where a token reaches over the border between question and answer, which it
// refuses.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/tokenizer.h"
#include "runtime/evaluation/core_bundle.h"
#include "runtime/evaluation/scorer.h"

namespace anabranch {

// The prompts of a question: one for each choice of multiple choice, and for each context of a
// schema; of language modelling the one without its continuation and the one with it.
//
//   shots  questions with their answers that are shown first
std::vector<std::string> core_prompts(const CoreTask& task, const CoreQuestion& question,
                                      std::span<const CoreQuestion* const> shots);

// The same as tokens, each after the token that begins a document, with what is scored of them:
// what follows the tokens that all choices begin with; of a schema the tokens that all end with; of
// language modelling the prompt with its continuation alone, and of it what follows the other.
//
//   longest  tokens of a sequence that the model takes; longer ones lose their beginning
ScoreItem core_item(const CoreTask& task, const std::vector<std::string>& prompts,
                    const Tokenizer& tokenizer, int64_t longest);

// Which choice the scores pick, or of language modelling: 0 if every token was the likeliest, else
// 1, where gold is 0. The lowest mean wins, the first of equal ones. A mean that is not a number,
// of a choice whose tokens are the beginning of all others, wins in the first place and loses in
// any other, as in the source.
size_t core_choice(const CoreTask& task, std::span<const TextScore> scores);

// The places of the questions shown with question i, of n in all, in order.
std::vector<uint32_t> core_shots(uint32_t i, uint32_t n, uint32_t shots);

// A text without white space at its ends, as Python's strip() has it.
std::string_view python_strip(std::string_view text);
// ... at its end alone, as rstrip().
std::string_view python_rstrip(std::string_view text);

}  // namespace anabranch
