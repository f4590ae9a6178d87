#include "runtime/evaluation/answers.h"

#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "runtime/evaluation/core_prompts.h"
#include "runtime/generator.h"

namespace anabranch {

namespace {

using Tokens = std::vector<int32_t>;

// Cut where the first of the ends begins, each in turn.
std::string cut(std::string text, const std::vector<std::string>& ends) {
  for (const std::string& end : ends) {
    if (end.empty()) continue;
    text.resize(std::min(text.find(end), text.size()));
  }
  return text;
}

}  // namespace

std::vector<int32_t> Answerer::encode(std::string_view text) const {
  std::vector<TokenId> ids;
  tokenizer_.encode_ordinary(text, ids);
  return {ids.begin(), ids.end()};
}

int32_t Answerer::beginning() const {
  const auto bos = tokenizer_.bos_id();
  if (!bos) {
    throw data_error("the run's tokenizer has no token that begins a document, which a text with ",
                     "nothing before it follows");
  }
  return static_cast<int32_t>(*bos);
}

ScoredText Answerer::pair(const Request& request) const {
  const std::string_view context = python_rstrip(request.context);
  const Tokens whole = encode(request.context + request.text);
  Tokens tokens = encode(context);
  // A token may reach over the border; then the last is scored at least.
  const size_t kept = std::min(tokens.size(), whole.size() - 1);
  tokens.resize(kept);
  tokens.insert(tokens.end(), whole.begin() + static_cast<std::ptrdiff_t>(kept), whole.end());
  const bool begins = options_.begin || kept == 0;
  if (begins) tokens.insert(tokens.begin(), beginning());
  const auto begin = static_cast<int64_t>(kept + (begins ? 1 : 0)), end = std::ssize(tokens);
  if (end - begin > model_.context()) {
    throw data_error(request.where, ": \"continuation\" has ", end - begin,
                     " tokens; the model's context has ", model_.context());
  }
  return {std::move(tokens), begin, end};
}

std::vector<ScoredText> Answerer::windows(const Request& request) const {
  const Tokens text = encode(request.text);
  Tokens all = {beginning()};
  all.insert(all.end(), text.begin(), text.end());
  const int64_t longest = model_.context(), count = std::ssize(text);
  std::vector<ScoredText> windows;
  for (int64_t done = 0; done < count;) {
    // Targets are all[done + 1 .. last]; the window reaches as far back as the context does.
    const int64_t last = std::min(done + longest, count);
    const int64_t first = std::max<int64_t>(last - longest, 0);
    windows.push_back(
        {{all.begin() + first, all.begin() + last + 1}, done + 1 - first, last + 1 - first});
    done = last;
  }
  return windows;
}

std::vector<int32_t> Answerer::prompt(const Request& request) const {
  Tokens tokens = encode(request.context);
  if (options_.begin || tokens.empty()) tokens.insert(tokens.begin(), beginning());
  // With room for what is generated; where there is none, half of the context is left.
  const int64_t context = model_.context();
  const int64_t room = request.max_tokens < context ? context - request.max_tokens
                                                    : std::max<int64_t>(context / 2, 1);
  if (std::ssize(tokens) > room) tokens.erase(tokens.begin(), tokens.end() - room);
  return tokens;
}

void Answerer::check(const Request& request) const {
  if (request.type == RequestType::kLoglikelihood) (void)pair(request);
  if (request.type == RequestType::kRolling) (void)beginning();
  if (request.type == RequestType::kGenerateUntil) (void)prompt(request);
}

void Answerer::score(std::span<const Request* const> requests, const std::vector<Places>& asked,
                     const std::vector<ScoreItem>& items, bool greedy,
                     std::vector<Answer>& answers) {
  Scorer scorer(model_, {.batch_tokens = options_.batch_tokens, .greedy = greedy});
  const auto scores = scorer.score(items);
  for (size_t i = 0; i < items.size(); ++i) {
    for (size_t j = 0; j < scores[i].size(); ++j) {
      const size_t place = asked[i][j];
      answers[place].logprob -= scores[i][j].nats;
      answers[place].tokens += scores[i][j].tokens;
      answers[place].greedy = greedy && scores[i][j].greedy;
      if (std::isfinite(scores[i][j].nats)) continue;
      throw data_error(requests[place]->where, ": the model gives a loss that is not finite; its ",
                       "weights are no good");
    }
  }
}

void Answerer::generate(std::span<const Request* const> requests, const Places& asked,
                        std::vector<Answer>& answers) {
  if (asked.empty()) return;
  std::vector<Tokens> prompts;
  SamplingOptions sampling{.max_tokens = 0, .temperature = 0};
  for (const size_t place : asked) {
    prompts.push_back(prompt(*requests[place]));
    sampling.max_tokens = std::max(sampling.max_tokens, requests[place]->max_tokens);
  }
  if (const auto eos = tokenizer_.eos_id()) sampling.stop_token = static_cast<int32_t>(*eos);
  const auto text_of = [&](std::span<const int32_t> tokens) {
    return tokenizer_.decode(std::vector<TokenId>(tokens.begin(), tokens.end()));
  };
  const auto ends = [&](size_t i, std::span<const int32_t> output) {
    const Request& request = *requests[asked[i]];
    if (std::ssize(output) >= request.max_tokens) return true;
    const std::string text = text_of(output);
    return cut(text, request.until).size() < text.size();
  };
  const auto outputs = anabranch::generate(model_, prompts, sampling, {}, ends);
  for (size_t i = 0; i < asked.size(); ++i) {
    const Request& request = *requests[asked[i]];
    if (request.max_tokens == 0) continue;
    answers[asked[i]].tokens = std::ssize(outputs[i]);
    answers[asked[i]].text = cut(text_of(outputs[i]), request.until);
  }
}

std::vector<Answer> Answerer::answer(std::span<const Request* const> requests) {
  std::vector<Answer> answers(requests.size());
  std::vector<Places> pairs, texts;
  std::vector<ScoreItem> pair_items, text_items;
  Places prompts;
  for (size_t i = 0; i < requests.size(); ++i) {
    const Request& request = *requests[i];
    switch (request.type) {
      case RequestType::kLoglikelihood: {
        ScoredText text = pair(request);
        const bool more =
            !pairs.empty() && pairs.back().back() + 1 == i &&
            requests[i - 1]->context == request.context &&
            (std::ssize(pair_items.back()) + 1) * std::ssize(text.tokens) <= options_.batch_tokens;
        if (!more) {
          pairs.emplace_back();
          pair_items.emplace_back();
        }
        pairs.back().push_back(i);
        pair_items.back().push_back(std::move(text));
        break;
      }
      case RequestType::kRolling:
        for (ScoredText& window : windows(request)) {  // each by itself: a text may be long
          texts.push_back({i});
          text_items.push_back({std::move(window)});
        }
        break;
      case RequestType::kGenerateUntil:
        prompts.push_back(i);
        break;
    }
  }
  score(requests, pairs, pair_items, true, answers);
  score(requests, texts, text_items, false, answers);
  // Side by side, those of like length, whose steps are as many.
  std::ranges::stable_sort(prompts, {}, [&](size_t i) {
    return std::pair(requests[i]->max_tokens, requests[i]->context.size());
  });
  const auto together =
      static_cast<size_t>(std::max<int64_t>(options_.batch_tokens / model_.context(), 1));
  for (size_t first = 0; first < prompts.size(); first += together) {
    const auto begin = prompts.begin() + static_cast<std::ptrdiff_t>(first);
    const size_t count = std::min(together, prompts.size() - first);
    generate(requests, {begin, begin + static_cast<std::ptrdiff_t>(count)}, answers);
  }
  return answers;
}

}  // namespace anabranch
