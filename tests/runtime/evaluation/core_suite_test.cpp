// Whole tasks: an untrained model guesses, one that knows the answers has them all right, and ranks
// share the work.
#include "runtime/evaluation/core_suite.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "core/base/philox.h"
#include "core/nn/init.h"
#include "parallel/comm/group.h"
#include "runtime/evaluation/core_prompts.h"
#include "runtime/models/gpt2.h"
#include "tests/data/folder.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tensors.h"

namespace anabranch {
namespace {

constexpr int64_t kQuestions = 300;

// Letters, from a number.
std::string word(uint32_t key) {
  std::string text;
  for (uint32_t bits = key * 2654435761U; text.size() < 5; bits >>= 5U) {
    text += static_cast<char>('a' + bits % 26);
  }
  return text;
}

// Every byte is a token, and there is one that begins a document.
Tokenizer byte_tokenizer() {
  Vocabulary vocabulary;
  for (int byte = 0; byte < 256; ++byte) vocabulary.tokens.emplace_back(1, static_cast<char>(byte));
  vocabulary.tokens.emplace_back("<|bos|>");
  vocabulary.specials = {256};
  return {"bytes", vocabulary, SplitPattern::kGpt2};
}

class CoreSuite : public testing::TestWithParam<CoreTaskType> {
 protected:
  void SetUp() override {
    task_.label = "made";
    task_.path = (dir_ / "made.jsonl").string();
    task_.type = GetParam();
    task_.shots = 2;
    task_.baseline = GetParam() == CoreTaskType::kLanguageModeling ? 0 : 25;
    std::ofstream out(task_.path);
    for (uint32_t q = 0; q < kQuestions; ++q) out << question(q).dump() << "\n";
  }

  [[nodiscard]] nlohmann::json question(uint32_t q) const {
    std::vector<std::string> four;
    for (uint32_t i = 0; i < 4; ++i) four.push_back(word(8 * q + i));
    switch (GetParam()) {
      case CoreTaskType::kMultipleChoice:
        return {{"query", word(8 * q + 5)}, {"choices", four}, {"gold", q % 4}};
      case CoreTaskType::kSchema:
        return {{"context_options", four}, {"continuation", word(8 * q + 5)}, {"gold", q % 4}};
      case CoreTaskType::kLanguageModeling:
        return {{"context", word(8 * q + 4)}, {"continuation", word(8 * q + 5)}};
    }
    return {};
  }

  const test::TempDir dir_;
  const Tokenizer tokenizer_ = byte_tokenizer();
  CoreTask task_;
};

std::unique_ptr<Gpt2> untrained() {
  Gpt2Options o;
  o.layers = 1;
  o.width = 16;
  o.heads = 2;
  o.context = 64;
  o.vocabulary = 257;
  auto model = std::make_unique<Gpt2>(o);
  model->visit([](Param& w) {
    allocate(w, DType::kF32);
    initialise(w, 3);
  });
  return model;
}

TEST_P(CoreSuite, AnUntrainedModelGuesses) {
  const auto model = untrained();
  run_on_threads(1, [&](Group& world) {
    const CoreTaskResult result = run_core_task(task_, *model, tokenizer_, world, {});
    // 99.9% of all guessers lie within 3.3 standard deviations.
    const double chance = task_.baseline / 100;
    EXPECT_NEAR(result.accuracy, chance, 3.3 * std::sqrt(chance * (1 - chance) / kQuestions));
    EXPECT_NEAR(result.centred, 0, 0.12);
    EXPECT_EQ(result.answers.size(), size_t{kQuestions});
  });
}

// Finds what follows any beginning of the texts that it has learnt by heart likely.
class Oracle final : public Model {
 public:
  explicit Oracle(const std::vector<std::vector<int32_t>>& texts) : head_(table_) {
    table_.shape = {kTokens, kTokens};
    allocate(table_, DType::kF32);
    for (int64_t v = 0; v < kTokens; ++v) {
      for (int64_t c = 0; c < kTokens; ++c) {
        table_.value.data<float>()[v * kTokens + c] = v == c ? 9.0F : 0.0F;
      }
    }
    for (const auto& text : texts) {
      for (size_t n = 1; n < text.size(); ++n) {
        next_[{text.begin(), text.begin() + static_cast<int64_t>(n)}] = text[n];
      }
    }
  }

  void visit(const std::function<void(Param&)>& /*f*/) override {}

  Var loss(Tape&, const MicroBatch&, const StepKey&, double) override { return Tensor(); }

  Tensor token_losses(const MicroBatch&, Routing) override { return {}; }

  Tensor logits(const Tensor&) override { return {}; }

  Tensor decode_hidden(const Tensor& ids, std::span<const int64_t> new_tokens,
                       DecodeState& /*state*/) override {
    const int64_t S = ids.dim(1);
    Tensor hidden({ids.count(), kTokens}, DType::kF32);
    hidden.fill_zero();
    for (int64_t b = 0; b < ids.dim(0); ++b) {
      for (int64_t s = 0; s < new_tokens[static_cast<size_t>(b)]; ++s) {
        const int32_t* const row = ids.data<int32_t>() + b * S;
        const auto found = next_.find({row, row + s + 1});
        if (found == next_.end()) continue;
        hidden.data<float>()[(b * S + s) * kTokens + found->second] = 1;
      }
    }
    return hidden;
  }

  [[nodiscard]] DecodeState decode_state(int64_t, int64_t) const override { return {}; }

  [[nodiscard]] const Head& head() const override { return head_; }

  [[nodiscard]] ModelCost cost() const override { return {}; }

  [[nodiscard]] Products products(int64_t) const override { return {}; }

  [[nodiscard]] int64_t context() const override { return 64; }

  [[nodiscard]] int64_t vocabulary() const override { return kTokens; }

 private:
  static constexpr int64_t kTokens = 257;

  Param table_;
  Head head_;
  std::map<std::vector<int32_t>, int32_t> next_;
};

// The texts of all right answers, with their shots.
std::vector<std::vector<int32_t>> right_texts(const CoreTask& task, const Tokenizer& tokenizer) {
  std::vector<std::vector<int32_t>> texts;
  const auto questions = read_core_questions(task);
  const auto model = untrained();
  run_on_threads(1, [&](Group& world) {
    const auto asked = run_core_task(task, *model, tokenizer, world, {}).answers;
    for (uint32_t i = 0; i < asked.size(); ++i) {
      std::vector<const CoreQuestion*> shots;
      for (const uint32_t shot : core_shots(i, static_cast<uint32_t>(asked.size()), 2)) {
        shots.push_back(&questions[asked[shot].place]);
      }
      const CoreQuestion& question = questions[asked[i].place];
      const ScoreItem item =
          core_item(task, core_prompts(task, question, shots), tokenizer, model->context());
      texts.push_back(item[question.gold].tokens);
    }
  });
  return texts;
}

TEST_P(CoreSuite, AModelThatKnowsTheAnswersHasThemAllRight) {
  Oracle oracle(right_texts(task_, tokenizer_));
  run_on_threads(1, [&](Group& world) {
    const CoreTaskResult result = run_core_task(task_, oracle, tokenizer_, world, {});
    EXPECT_EQ(result.accuracy, 1);
    EXPECT_EQ(result.centred, 1);
  });
}

TEST_P(CoreSuite, RanksShareTheWork) {
  CoreTaskResult alone;
  const CoreOptions options{.max_per_task = 31, .scorer = {}};
  run_on_threads(1, [&](Group& world) {
    const auto model = untrained();
    alone = run_core_task(task_, *model, tokenizer_, world, options);
  });
  ASSERT_EQ(alone.answers.size(), 31U);
  run_on_threads(3, [&](Group& world) {
    const auto model = untrained();
    const CoreTaskResult result = run_core_task(task_, *model, tokenizer_, world, options);
    EXPECT_EQ(result.accuracy, alone.accuracy);
    EXPECT_EQ(result.counts.tokens, alone.counts.tokens);
    ASSERT_EQ(result.answers.size(), alone.answers.size());
    for (size_t i = 0; i < result.answers.size(); ++i) {
      EXPECT_EQ(result.answers[i].place, alone.answers[i].place);
      EXPECT_EQ(result.answers[i].chosen, alone.answers[i].chosen);
      for (size_t c = 0; c < result.answers[i].scores.size(); ++c) {
        EXPECT_NEAR(result.answers[i].scores[c], alone.answers[i].scores[c], 1e-5);
      }
    }
  });
}

TEST_P(CoreSuite, TellsHowManyPromptsLostTheirBeginning) {
  task_.shots = 10;
  const auto model = untrained();
  run_on_threads(1, [&](Group& world) {
    const CoreOptions options{.max_per_task = 11, .scorer = {}};
    const CoreTaskResult result = run_core_task(task_, *model, tokenizer_, world, options);
    const int64_t prompts = GetParam() == CoreTaskType::kLanguageModeling ? 11 : 44;
    EXPECT_EQ(result.counts.truncated, prompts);
    EXPECT_LE(result.counts.tokens, prompts * model->context());
    test::expect_error(Fault::kUsage, {"made shows 10 other questions", "--max-per-task"}, [&] {
      (void)run_core_task(task_, *model, tokenizer_, world, {.max_per_task = 10, .scorer = {}});
    });
  });
}

INSTANTIATE_TEST_SUITE_P(All, CoreSuite,
                         testing::Values(CoreTaskType::kMultipleChoice, CoreTaskType::kSchema,
                                         CoreTaskType::kLanguageModeling),
                         [](const auto& type) {
                           return std::string(
                               words_of(type.param)[static_cast<size_t>(type.param)]);
                         });

}  // namespace
}  // namespace anabranch
