// Scores equal the losses of whole sequences, one at a time, for every family.
#include "runtime/evaluation/scorer.h"

#include <algorithm>
#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/base/philox.h"
#include "core/nn/init.h"
#include "runtime/models/registry.h"
#include "tests/runtime/small_families.h"
#include "tests/runtime/training.h"
#include "tests/support/tensors.h"

namespace anabranch {
namespace {

constexpr int64_t kContext = 64, kVocabulary = 61;

struct Family {
  const char* name;
  void (*set)(Config& config);
};

const Family kFamilies[] = {
    {"gpt2", [](Config&) {}},
    {"cmollm", test::streams<GateVariant::kContextAware>},
    {"cmollm_pipeline", test::pipeline<GateVariant::kContextAware>},
    {"parascale", test::copies},
    {"altup", [](Config& c) { c.model.type = ModelType::kAltup; }},
    {"kappa_moe", test::token_choice},
    {"moep_msit", test::select<Selection::kThreshold>},
};

std::unique_ptr<Model> model_of(const Family& family) {
  Config config = test::TrainingFolder().config("run", 1);
  config.model.context = kContext;
  config.train.precision = Precision::kFp64;
  family.set(config);
  fill_derived(config);
  std::unique_ptr<Model> model = make_model(config, kVocabulary);
  model->visit([](Param& w) {
    if (w.init.kind == Init::Kind::kNormal) w.init.value = 0.5F;  // losses far apart
    allocate(w, DType::kF64);
    initialise(w, 3);
  });
  model->visit_buffers([](Buffer& b) { b.value.fill_zero(); });
  return model;
}

ScoredText text(int64_t common, int64_t own, int64_t scored, uint32_t key) {
  ScoredText made;
  for (int64_t i = 0; i < common + own; ++i) {
    const auto place = static_cast<uint32_t>(i);
    const uint32_t random = place * 2654435761U + (i < common ? 1U : 77U * key + 5U);
    made.tokens.push_back(static_cast<int32_t>((random >> 8U) % kVocabulary));
  }
  made.end = common + own;
  made.begin = made.end - scored;
  return made;
}

// Of like and unlike lengths, alone and with much or little in common.
std::vector<ScoreItem> items() {
  return {{text(30, 5, 5, 1), text(30, 9, 4, 2), text(30, 7, 7, 3)},
          {text(3, 4, 2, 4)},
          {text(20, 3, 2, 5), text(20, 6, 6, 6)},
          {text(2, 6, 3, 7), text(2, 9, 1, 8)},
          {text(0, 50, 49, 9)}};
}

// The same by a forward of each sequence.
TextScore by_itself(Model& model, const ScoredText& text) {
  const auto T = std::ssize(text.tokens) - 1;
  const auto inputs = Tensor::of<int32_t>({1, T}, {text.tokens.begin(), text.tokens.end() - 1});
  const auto targets = Tensor::of<int32_t>({1, T}, {text.tokens.begin() + 1, text.tokens.end()});
  const std::vector<double> losses = test::values(model.token_losses({inputs, targets, 0}));
  TextScore score;
  for (int64_t t = text.begin; t < text.end; ++t) {
    score.nats += losses[static_cast<size_t>(t - 1)];
    ++score.tokens;
  }
  return score;
}

class ScorerOf : public testing::TestWithParam<Family> {};

TEST_P(ScorerOf, EqualsAForwardOfEachSequence) {
  const auto model = model_of(GetParam());
  const std::vector<ScoreItem> all = items();
  for (const int64_t batch_tokens : {1, 150, 100000}) {
    for (const bool share : {true, false}) {
      Scorer scorer(*model, {.batch_tokens = batch_tokens, .share = share});
      const auto scores = scorer.score(all);
      ASSERT_EQ(scores.size(), all.size());
      for (size_t i = 0; i < all.size(); ++i) {
        for (size_t j = 0; j < all[i].size(); ++j) {
          const TextScore want = by_itself(*model, all[i][j]);
          EXPECT_NEAR(scores[i][j].nats, want.nats, 1e-9 * want.nats) << i << " " << j;
          EXPECT_EQ(scores[i][j].tokens, want.tokens);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, ScorerOf, testing::ValuesIn(kFamilies),
                         [](const auto& family) { return family.param.name; });

TEST(Scorer, WhatItemsHaveInCommonIsComputedOnce) {
  const auto model = model_of(kFamilies[0]);
  Scorer shared(*model, {}), whole(*model, {.share = false});
  const std::vector<ScoreItem> all = items();
  (void)shared.score(all);
  (void)whole.score(all);
  int64_t tokens = 0;
  for (const ScoreItem& item : all) {
    for (const ScoredText& text : item) tokens += text.end;
  }
  EXPECT_EQ(whole.counts().tokens, tokens);
  EXPECT_EQ(whole.counts().computed, tokens - 9);  // not the last of each sequence
  // 30 are common in the first item and 20 in the third, but one of them comes before what is
  // scored first, and is computed with it; the fourth's two are too few.
  EXPECT_EQ(shared.counts().computed, whole.counts().computed - 2 * 29 - 19);
}

TEST(Scorer, SaysWhetherTheTokensAreTheLikeliest) {
  const auto model = model_of(kFamilies[0]);
  ScoredText made = text(0, 4, 3, 1);
  for (int64_t t = 1; t < 4; ++t) {  // greedy from the first token on
    const std::vector<int32_t> before(made.tokens.begin(), made.tokens.begin() + t);
    const auto logits =
        test::values(model->logits(Tensor::of<int32_t>({1, std::ssize(before)}, before)));
    const auto last = logits.end() - kVocabulary;
    made.tokens[static_cast<size_t>(t)] =
        static_cast<int32_t>(std::max_element(last, logits.end()) - last);
  }
  ScoredText other = made;
  other.tokens.back() = other.tokens.back() > 0 ? 0 : 1;
  ScoredText nothing = made;
  nothing.begin = nothing.end;
  Scorer scorer(*model, {.greedy = true});
  const auto scores = scorer.score(std::vector<ScoreItem>{{made, other, nothing}});
  EXPECT_TRUE(scores[0][0].greedy);
  EXPECT_FALSE(scores[0][1].greedy);
  EXPECT_TRUE(scores[0][2].greedy);
  EXPECT_TRUE(std::isnan(scores[0][2].mean()));
}

TEST(Scorer, LongSequencesLoseTheirBeginning) {
  const auto model = model_of(kFamilies[0]);
  const ScoredText longer = text(0, kContext + 20, 6, 1);
  ScoredText last = longer;  // the context, and a target
  last.tokens.erase(last.tokens.begin(), last.tokens.end() - kContext - 1);
  last.end = kContext + 1;
  last.begin = last.end - 6;
  Scorer scorer(*model, {});
  const auto scores = scorer.score(std::vector<ScoreItem>{{longer}, {last}});
  EXPECT_NEAR(scores[0][0].nats, scores[1][0].nats, 1e-9);
  EXPECT_EQ(scorer.counts().truncated, 1);
}

TEST(Scorer, RefusesWhatIsNoSequenceOfTheModel) {
  const auto model = model_of(kFamilies[0]);
  Scorer scorer(*model, {});
  const auto refused = [&](const ScoredText& text) {
    EXPECT_THROW(scorer.score(std::vector<ScoreItem>{{text}}), Error);
  };
  refused({{1, 2, kVocabulary}, 1, 3});
  refused({{1, -1, 2}, 1, 3});
  refused({{1, 2, 3}, 0, 2});
  refused({{1, 2, 3}, 2, 4});
  refused({{1, 2, 3}, 2, 1});
  refused({std::vector<int32_t>(200, 1), 2, 200});
}

}  // namespace
}  // namespace anabranch
