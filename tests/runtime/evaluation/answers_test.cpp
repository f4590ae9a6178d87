// Answers to lm-evaluation-harness equal those by a forward of each sequence, cut as it cuts them.
#include "runtime/evaluation/answers.h"

#include <algorithm>
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/read_file.h"
#include "core/nn/init.h"
#include "runtime/evaluation/answer_file.h"
#include "runtime/models/gpt2.h"
#include "tests/data/shard/text_set.h"
#include "tests/support/tensors.h"

namespace anabranch {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using Tokens = std::vector<int32_t>;

constexpr int64_t kContext = 24;
constexpr int32_t kBegin = 256, kPair = 257;

// Every byte is a token, and so is "bc".
Tokenizer tokenizer() {
  Vocabulary vocabulary;
  for (int byte = 0; byte < 256; ++byte) vocabulary.tokens.emplace_back(1, static_cast<char>(byte));
  vocabulary.tokens.emplace_back("<|bos|>");
  vocabulary.tokens.emplace_back("bc");
  vocabulary.specials = {kBegin};
  vocabulary.merges = {{'b', 'c'}};
  return {"bytes", vocabulary, SplitPattern::kGpt2};
}

std::unique_ptr<Gpt2> model_of(uint64_t seed = 3) {
  Gpt2Options o;
  o.layers = 1;
  o.width = 16;
  o.heads = 2;
  o.context = kContext;
  o.vocabulary = 258;
  o.compute = DType::kF64;
  auto model = std::make_unique<Gpt2>(o);
  model->visit([seed](Param& w) {
    if (w.init.kind == Init::Kind::kNormal) w.init.value = 0.5F;
    allocate(w, DType::kF64);
    initialise(w, seed);
  });
  return model;
}

Tokens bytes(const std::string& text) { return {text.begin(), text.end()}; }

class Answers : public testing::Test {
 protected:
  [[nodiscard]] std::vector<Answer> answer(const std::vector<Request>& requests,
                                           const AnswerOptions& options = {}) const {
    std::vector<const Request*> all;
    for (const Request& request : requests) all.push_back(&request);
    return Answerer(*model_, tokenizer_, options).answer(all);
  }

  // Of the tokens from `begin` on.
  [[nodiscard]] double logprob(const Tokens& tokens, int64_t begin) const {
    const auto T = std::ssize(tokens) - 1;
    const Tensor inputs = Tensor::of<int32_t>({1, T}, {tokens.begin(), tokens.end() - 1});
    const Tensor targets = Tensor::of<int32_t>({1, T}, {tokens.begin() + 1, tokens.end()});
    const std::vector<double> losses = test::values(model_->token_losses({inputs, targets, 0}));
    double sum = 0;
    for (int64_t t = begin; t <= T; ++t) sum -= losses[static_cast<size_t>(t - 1)];
    return sum;
  }

  [[nodiscard]] int32_t likeliest(const Tokens& before) const {
    const auto logits =
        test::values(model_->logits(Tensor::of<int32_t>({1, std::ssize(before)}, before)));
    const auto last = logits.end() - 258;
    return static_cast<int32_t>(std::max_element(last, logits.end()) - last);
  }

  const std::unique_ptr<Gpt2> model_ = model_of();
  const Tokenizer tokenizer_ = tokenizer();
};

Request pair(const std::string& context, const std::string& text) {
  Request request;
  request.context = context;
  request.text = text;
  return request;
}

TEST_F(Answers, ALoglikelihoodIsThatOfTheContinuation) {
  const struct {
    std::string context, continuation;
    Tokens tokens;
    int64_t begin;
  } cases[] = {
      {"ad", "ef", bytes("adef"), 2},
      {"ad \t", "ef", bytes("ad \tef"), 2},  // white space moves over
      {"ad\xc2\xa0", "e",
       bytes("ad\xc2\xa0"
             "e"),
       2},  // of any kind
      {"", "ad", {kBegin, 'a', 'd'}, 1},
      {"  ", "ad", {kBegin, ' ', ' ', 'a', 'd'}, 1},
      {"ab", "cd", {'a', 'b', 'd'}, 2},  // "bc" lies over the border
      {"ab", "c", {'a', kPair}, 1},      // and here is all there is
      {"b", "c", {kBegin, kPair}, 1},
      {std::string(30, 'x') + "yz", "ad", bytes(std::string(21, 'x') + "yzad"), 23},
  };

  std::vector<Request> requests;
  for (const auto& each : cases) requests.push_back(pair(each.context, each.continuation));
  const std::vector<Answer> answers = answer(requests);
  for (size_t i = 0; i < std::size(cases); ++i) {
    SCOPED_TRACE(cases[i].context + "|" + cases[i].continuation);
    Tokens tokens = cases[i].tokens;
    for (int32_t& token : tokens) token = token < 0 ? token + 256 : token;
    EXPECT_NEAR(answers[i].logprob, logprob(tokens, cases[i].begin), 1e-9);
    EXPECT_EQ(answers[i].tokens, std::ssize(tokens) - cases[i].begin);
  }
  const Answer begun = answer({pair("ad", "ef")}, {.begin = true}).front();
  EXPECT_NEAR(begun.logprob, logprob({kBegin, 'a', 'd', 'e', 'f'}, 3), 1e-9);
}

TEST_F(Answers, GreedyIsTheLikeliestTokens) {
  const auto text = [&](const Tokens& ids) {
    return tokenizer_.decode(std::vector<TokenId>(ids.begin(), ids.end()));
  };
  const Tokens before = bytes("adx");
  const std::string next = text({likeliest(before)});
  ASSERT_TRUE(next != "<|bos|>" && next.find_first_of(" \xc2") == std::string::npos);
  const auto answers = answer({pair("adx", next), pair("adx", next == "q" ? "r" : "q")});
  EXPECT_TRUE(answers[0].greedy);
  EXPECT_FALSE(answers[1].greedy);
}

// utils.get_rolling_token_windows and make_disjoint_window of the harness.
TEST_F(Answers, ARollingTextIsCutAsTheHarnessCutsIt) {
  for (const int64_t length : {0, 1, 23, 24, 25, 48, 60}) {
    std::string text;
    for (int64_t i = 0; i < length; ++i) text += static_cast<char>('d' + (i * i + i / 3) % 20);
    const Tokens tokens = bytes(text);
    double want = 0;
    int64_t predicted = std::min(kContext, length);
    if (length > 0) {
      Tokens first = {kBegin};
      first.insert(first.end(), tokens.begin(), tokens.begin() + predicted);
      want += logprob(first, 1);
    }
    while (predicted < length) {
      const int64_t count = std::min(length - predicted, kContext), end = predicted + count;
      const Tokens window(tokens.begin() + end - kContext - 1, tokens.begin() + end);
      want += logprob(window, kContext + 1 - count);
      predicted = end;
    }
    Request request;
    request.type = RequestType::kRolling;
    request.text = text;
    const Answer got = answer({request, pair("a", "b")}, {.batch_tokens = 60}).front();
    EXPECT_NEAR(got.logprob, want, 1e-9 * (1 - want)) << length;
    EXPECT_EQ(got.tokens, length);
  }
}

TEST_F(Answers, GenerationIsGreedyAndEndsAtTheFirstStop) {
  Request request;
  request.type = RequestType::kGenerateUntil;
  request.context = "adef";
  request.max_tokens = 8;
  Tokens all = bytes("adef");
  for (int i = 0; i < 8; ++i) all.push_back(likeliest(all));
  const std::vector<TokenId> made(all.begin() + 4, all.end());
  const std::string text = tokenizer_.decode(made);
  ASSERT_EQ(text.find("<|bos|>"), std::string::npos);
  Request stopped = request, none = request, longer = request;
  stopped.until = {"", std::string(1, text[3])};
  none.max_tokens = 0;
  longer.max_tokens = 1;
  const auto answers = answer({request, stopped, none, longer});
  EXPECT_EQ(answers[0].text, text);
  EXPECT_EQ(answers[1].text, text.substr(0, text.find(text[3])));
  EXPECT_EQ(answers[2].text, "");
  EXPECT_EQ(answers[3].text, tokenizer_.decode(std::span(made).first(1)));
}

// Files of requests, whose answers outlive an attempt.
class AnswerFiles : public Answers {
 protected:
  AnswerFiles() {
    std::string lines;
    for (int i = 0; i < 24; ++i) {
      const json each = i % 4 < 2    ? json{{"id", i},
                                         {"type", "loglikelihood"},
                                         {"context", "ad" + std::to_string(i / 4)},
                                         {"continuation", i % 2 != 0 ? "ef" : " ghi"}}
                        : i % 4 == 2 ? json{{"id", "r" + std::to_string(i)},
                                            {"type", "loglikelihood_rolling"},
                                            {"text", std::string(static_cast<size_t>(i * 2), 'm')}}
                                     : json{{"id", i},
                                            {"type", "generate_until"},
                                            {"context", "xy" + std::to_string(i)},
                                            {"until", {"\n"}},
                                            {"max_tokens", 3}};
      lines += each.dump() + "\n";
    }
    test::spill(folder_.path("in.jsonl"), lines);
  }

  AnswerFileCounts run(const std::string& out, int ranks = 1, uint64_t seed = 3) const {
    AnswerFileCounts counts;
    AnswerFileOptions options;
    options.part_bytes = 300;
    run_on_threads(ranks, [&](Group& world) {
      const auto model = model_of(seed);
      const AnswerFileCounts mine = answer_file(folder_.path("in.jsonl"), folder_.path(out), *model,
                                                tokenizer_, join("model ", seed), world, options);
      if (world.rank() == 0) counts = mine;
    });
    return counts;
  }

  [[nodiscard]] std::string text(const std::string& name) const {
    return read_file(folder_.path(name));
  }

  [[nodiscard]] std::vector<json> lines(const std::string& name) const {
    std::vector<json> all;
    std::istringstream in(text(name));
    for (std::string line; std::getline(in, line);) all.push_back(json::parse(line));
    return all;
  }

  const test::Folder folder_;
};

TEST_F(AnswerFiles, RanksShareTheRequests) {
  const AnswerFileCounts one = run("one");
  EXPECT_EQ(one.requests, 24);
  const std::vector<json> want = lines("one");
  ASSERT_EQ(want.size(), 24U);
  EXPECT_EQ(want[1].at("id"), 1);
  EXPECT_EQ(want[2].at("id"), "r2");
  for (const int ranks : {2, 3}) {
    const AnswerFileCounts counts = run(join(ranks), ranks);
    EXPECT_EQ(counts.tokens, one.tokens);
    const std::vector<json> got = lines(join(ranks));
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) {
      for (const char* same : {"id", "is_greedy", "tokens", "text", "of"}) {
        EXPECT_EQ(got[i].value(same, json()), want[i].value(same, json())) << i << same;
      }
      if (want[i].contains("logprob")) {
        EXPECT_NEAR(got[i].at("logprob"), want[i].at("logprob"), 1e-9) << i;
      }
    }
  }
}

TEST_F(AnswerFiles, AnAttemptGoesOnWhereOneWasKilled) {
  run("whole");
  const std::string whole = text("whole");
  for (const size_t bytes : {size_t{0}, size_t{1}, whole.find('\n'), whole.find('\n') + 1,
                             whole.size() / 2, whole.size() - 1, whole.size()}) {
    test::spill(folder_.path("cut"), whole.substr(0, bytes));
    const AnswerFileCounts counts = run("cut", 2);
    EXPECT_EQ(counts.kept,
              std::count(whole.begin(), whole.begin() + static_cast<int64_t>(bytes), '\n'));
    EXPECT_EQ(lines("cut").size(), 24U) << bytes;
    if (bytes == whole.size()) {
      EXPECT_EQ(text("cut"), whole);
    }
  }
}

TEST_F(AnswerFiles, OthersAnswersAreRefusedAndLeft) {
  run("out");
  const std::string whole = text("out");
  const auto refused = [&](const std::string& what, const auto& attempt) {
    test::expect_error(Fault::kData, {what}, attempt);
  };
  refused("out:1: answers none of these", [&] { run("out", 1, 4); });
  EXPECT_EQ(text("out"), whole);
  const std::string asked = text("in.jsonl");
  refused("in.jsonl:1: no answer", [&] { run("in.jsonl"); });
  EXPECT_EQ(text("in.jsonl"), asked);
  test::spill(folder_.path("other"), "mine");
  refused("other:1: no answer", [&] { run("other"); });
  EXPECT_EQ(text("other"), "mine");
}

TEST_F(AnswerFiles, HostileRequestsAreNamed) {
  const std::string good =
      R"({"id": 1, "type": "loglikelihood", "context": "a", "continuation": "b"})";
  const std::string more = R"({"id": 2, "type": "generate_until", "context": "a", "until": )";
  const std::pair<std::string, std::string> cases[] = {
      {"{", "no JSON object in UTF-8"},
      {"[]", "no JSON object in UTF-8"},
      {"{\"id\": \"\xff\"}", "no JSON object in UTF-8"},
      {R"({"id": 1.5})", "no \"id\""},
      {R"({"type": "loglikelihood"})", "no \"id\""},
      {R"({"id": 2})", "no text \"type\""},
      {R"({"id": 2, "type": "score"})", "\"type\" is \"score\"; expected loglikelihood"},
      {R"({"id": 2, "type": "loglikelihood", "context": "a"})", "no text \"continuation\""},
      {R"({"id": 2, "type": "loglikelihood", "context": "a", "continuation": ""})", "is empty"},
      {R"({"id": 2, "type": "loglikelihood_rolling", "text": 3})", "no text \"text\""},
      {more + R"("a", "max_tokens": 1})", "no list of texts \"until\""},
      {more + R"([1], "max_tokens": 1})", "no list of texts \"until\""},
      {more + "[]}", "no whole number \"max_tokens\""},
      {more + R"([], "max_tokens": -1})", "no whole number \"max_tokens\""},
      {more + R"([], "max_tokens": 99999999999999999999})", "no whole number \"max_tokens\""},
      {good, "the id \"1\" is that of line 1 too"},
      {R"({"id": 2, "type": "loglikelihood", "context": "", "continuation": ")" +
           std::string(25, 'x') + "\"}",
       "has 25 tokens; the model's context has 24"},
      {"{\"id\": \"" + std::string(size_t{17} << 20U, 'x') + "\"}", "line"},
  };
  for (const auto& [line, what] : cases) {
    test::spill(folder_.path("in.jsonl"), good + "\n\n" + line + "\n");
    test::expect_error(Fault::kData, {"in.jsonl", what}, [&] { run("none"); });
    test::expect_error(Fault::kData, {"3"}, [&] { run("none"); });
    EXPECT_FALSE(std::filesystem::exists(folder_.path("none"))) << what;
  }
}

}  // namespace
}  // namespace anabranch
