#include "runtime/evaluation/core_prompts.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/base/error.h"
#include "runtime/evaluation/python_random.h"

namespace anabranch {

namespace {

constexpr uint64_t kShotSeed = 1234;  // and the question's place

// What str.isspace() holds for, in UTF-8.
constexpr std::array<std::string_view, 29> kSpaces = {
    "\t",           "\n",           "\v",           "\f",           "\r",
    "\x1c",         "\x1d",         "\x1e",         "\x1f",         " ",
    "\xc2\x85",     "\xc2\xa0",     "\xe1\x9a\x80", "\xe2\x80\x80", "\xe2\x80\x81",
    "\xe2\x80\x82", "\xe2\x80\x83", "\xe2\x80\x84", "\xe2\x80\x85", "\xe2\x80\x86",
    "\xe2\x80\x87", "\xe2\x80\x88", "\xe2\x80\x89", "\xe2\x80\x8a", "\xe2\x80\xa8",
    "\xe2\x80\xa9", "\xe2\x80\xaf", "\xe2\x81\x9f", "\xe3\x80\x80"};

using Tokens = std::vector<int32_t>;

// A question with one of its contexts and continuations.
std::string asked(const CoreTask& task, std::string_view context, const std::string& continuation) {
  const bool trims = task.type == CoreTaskType::kLanguageModeling;
  return join(trims ? python_strip(context) : context, task.delimiter, continuation);
}

std::string answered(const CoreTask& task, const CoreQuestion& shot) {
  const size_t context = shot.contexts.size() > 1 ? shot.gold : 0;
  const size_t continuation = shot.continuations.size() > 1 ? shot.gold : 0;
  return asked(task, shot.contexts[context], shot.continuations[continuation]) + "\n\n";
}

Tokens encode(const Tokenizer& tokenizer, const std::string& prompt) {
  const auto bos = tokenizer.bos_id();
  if (!bos) {
    throw data_error(
        "the run's tokenizer has no token that begins a document, and every prompt of "
        "CORE begins with one");
  }
  std::vector<TokenId> tokens = {*bos};
  tokenizer.encode_ordinary(prompt, tokens);
  return {tokens.begin(), tokens.end()};
}

// How many tokens all of them begin with.
int64_t common_beginning(const std::vector<Tokens>& all) {
  int64_t common = std::ssize(all.front());
  for (const Tokens& tokens : all) {
    const auto [here, there] = std::ranges::mismatch(tokens, all.front());
    common = std::min(common, static_cast<int64_t>(here - tokens.begin()));
  }
  return common;
}

int64_t common_end(std::vector<Tokens> all) {
  for (Tokens& tokens : all) std::ranges::reverse(tokens);
  return common_beginning(all);
}

// With no more tokens than the model takes.
ScoredText scored(Tokens tokens, int64_t begin, int64_t longest) {
  const int64_t over = std::max<int64_t>(std::ssize(tokens) - longest, 0);
  tokens.erase(tokens.begin(), tokens.begin() + over);
  const int64_t end = std::ssize(tokens);
  return {std::move(tokens), std::min(std::max<int64_t>(begin - over, 1), end), end, over > 0};
}

}  // namespace

std::string_view python_rstrip(std::string_view text) {
  const auto ends = [&](std::string_view space) { return text.ends_with(space); };
  for (auto space = std::ranges::find_if(kSpaces, ends); space != kSpaces.end();
       space = std::ranges::find_if(kSpaces, ends)) {
    text.remove_suffix(space->size());
  }
  return text;
}

std::string_view python_strip(std::string_view text) {
  text = python_rstrip(text);
  const auto begins = [&](std::string_view space) { return text.starts_with(space); };
  for (auto space = std::ranges::find_if(kSpaces, begins); space != kSpaces.end();
       space = std::ranges::find_if(kSpaces, begins)) {
    text.remove_prefix(space->size());
  }
  return text;
}

std::vector<std::string> core_prompts(const CoreTask& task, const CoreQuestion& question,
                                      std::span<const CoreQuestion* const> shots) {
  std::string shown;
  for (const CoreQuestion* shot : shots) shown += answered(task, *shot);
  if (task.type == CoreTaskType::kLanguageModeling) {
    const std::string& context = question.contexts.front();
    // Without white space at the end, which would be a token of its own and the answer's another.
    return {std::string(python_strip(shown + asked(task, context, ""))),
            shown + asked(task, context, question.continuations.front())};
  }
  std::vector<std::string> prompts;
  for (const std::string& context : question.contexts) {
    for (const std::string& continuation : question.continuations) {
      prompts.push_back(shown + asked(task, context, continuation));
    }
  }
  return prompts;
}

ScoreItem core_item(const CoreTask& task, const std::vector<std::string>& prompts,
                    const Tokenizer& tokenizer, int64_t longest) {
  std::vector<Tokens> all;
  all.reserve(prompts.size());
  for (const std::string& prompt : prompts) all.push_back(encode(tokenizer, prompt));
  ScoreItem item;
  if (task.type == CoreTaskType::kLanguageModeling) {
    // Where a token reaches over the border, what is scored begins with it.
    item.push_back(scored(all[1], common_beginning(all), longest));
  } else if (task.type == CoreTaskType::kSchema) {
    const int64_t common = common_end(all);
    for (Tokens& tokens : all) {
      const int64_t begin = std::ssize(tokens) - common;
      item.push_back(scored(std::move(tokens), begin, longest));
    }
  } else {
    const int64_t begin = common_beginning(all);
    for (Tokens& tokens : all) item.push_back(scored(std::move(tokens), begin, longest));
  }
  return item;
}

size_t core_choice(const CoreTask& task, std::span<const TextScore> scores) {
  if (task.type == CoreTaskType::kLanguageModeling) return scores.front().greedy ? 0 : 1;
  size_t best = 0;
  for (size_t i = 1; i < scores.size(); ++i) {
    if (scores[i].mean() < scores[best].mean()) best = i;
  }
  return best;
}

std::vector<uint32_t> core_shots(uint32_t i, uint32_t n, uint32_t shots) {
  std::vector<uint32_t> places = PythonRandom(kShotSeed + i).sample(n - 1, shots);
  for (uint32_t& place : places) place += place >= i ? 1 : 0;  // among all but question i
  return places;
}

}  // namespace anabranch
