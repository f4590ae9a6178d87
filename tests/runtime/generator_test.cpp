#include "runtime/generator.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <gtest/gtest.h>

#include "core/base/philox.h"
#include "core/nn/init.h"
#include "runtime/models/gpt2.h"
#include "tests/support/tensors.h"

namespace anabranch {
namespace {

std::unique_ptr<Gpt2> tiny(DType type = DType::kF32) {
  Gpt2Options o;
  o.layers = 2;
  o.width = 16;
  o.heads = 2;
  o.context = 12;
  o.vocabulary = 31;
  o.compute = type;
  auto model = std::make_unique<Gpt2>(o);
  model->visit([](Param& w) {
    // Larger than the usual 0.02, so that greedy choices are far apart.
    if (w.init.kind == Init::Kind::kNormal) w.init.value = 0.5F;
    allocate(w, DType::kF32);
    initialise(w, 3);
  });
  return model;
}

// Greedy decoding by running the whole prefix again for every token.
std::vector<int32_t> uncached(Model& model, std::vector<int32_t> ids, int64_t tokens) {
  std::vector<int32_t> output;
  for (int64_t n = 0; n < tokens; ++n) {
    const Tensor logits = model.logits(Tensor::of<int32_t>({1, std::ssize(ids)}, ids));
    const std::vector<double> all = test::values(logits);
    const auto last = all.end() - model.vocabulary();
    output.push_back(static_cast<int32_t>(std::max_element(last, all.end()) - last));
    ids.push_back(output.back());
  }
  return output;
}

TEST(Generate, GreedyEqualsTheUncachedForwardForPromptsOfAnyLength) {
  const auto model = tiny();
  const std::vector<std::vector<int32_t>> prompts = {{1, 2, 3}, {4}, {5, 6, 7, 8, 9}};
  SamplingOptions o;
  o.temperature = 0;
  o.max_tokens = 7;
  const auto outputs = generate(*model, prompts, o);
  for (size_t i = 0; i < prompts.size(); ++i) {
    EXPECT_EQ(outputs[i], uncached(*model, prompts[i], 7)) << "prompt " << i;
  }
}

TEST(Generate, GoesOnBeyondTheContextAndStopsAtTheStopToken) {
  const auto model = tiny();
  SamplingOptions o;
  o.temperature = 0;
  o.max_tokens = 40;
  const auto outputs = generate(*model, {{1, 2, 3}, {9}}, o);
  ASSERT_EQ(outputs[0].size(), 40U);
  // What fills the context is cut to its newer half.
  EXPECT_EQ(std::vector(outputs[0].begin(), outputs[0].begin() + 9),
            uncached(*model, {1, 2, 3}, 9));
  o.stop_token = outputs[0][5];
  const auto stopped = generate(*model, {{1, 2, 3}}, o);
  EXPECT_LT(stopped[0].size(), 6U);
}

TEST(Generate, ASeedGivesTheSameTokensWhateverTheBatch) {
  const auto model = tiny();
  SamplingOptions o;
  o.max_tokens = 6;
  o.seed = 5;
  const auto pair = generate(*model, {{1, 2}, {3, 4}}, o);
  EXPECT_EQ(generate(*model, {{1, 2}}, o)[0], pair[0]);
  o.seed = 6;
  EXPECT_NE(generate(*model, {{1, 2}, {3, 4}}, o), pair);
}

TEST(Generate, BadOptionsAreRefused) {
  const auto model = tiny();
  SamplingOptions o;
  o.top_p = 0;
  EXPECT_THROW(generate(*model, {{1}}, o), Error);
  EXPECT_THROW(generate(*model, {{}}, {}), Error);
}

// Probabilities 1/2, 1/4, 1/8, 1/8 of tokens 2, 0, 1, 3.
const std::vector<float> kLogits = {std::log(2.0F), 0, std::log(4.0F), 0};

TEST(Sample, FollowsTheProbabilities) {
  SamplingOptions o;
  EXPECT_EQ(sample(kLogits, o, 0.49), 2);
  EXPECT_EQ(sample(kLogits, o, 0.51), 0);
  EXPECT_EQ(sample(kLogits, o, 0.76), 1);
  EXPECT_EQ(sample(kLogits, o, 0.88), 3);
  o.temperature = 0;
  EXPECT_EQ(sample(kLogits, o, 0.99), 2);
}

TEST(Sample, TopKAndTopPCutTheTail) {
  SamplingOptions o;
  o.top_k = 2;  // 2/3, 1/3
  EXPECT_EQ(sample(kLogits, o, 0.66), 2);
  EXPECT_EQ(sample(kLogits, o, 0.67), 0);
  EXPECT_EQ(sample(kLogits, o, 0.999), 0);
  o.top_k = 0;
  o.top_p = 0.5;
  EXPECT_EQ(sample(kLogits, o, 0.999), 2);
  o.top_p = 0.6;
  EXPECT_EQ(sample(kLogits, o, 0.999), 0);
}

TEST(Sample, ExactlyTopPIsEnough) {
  SamplingOptions o;
  o.top_p = 0.5;
  EXPECT_EQ(sample(std::vector<float>{0, 0, 0, 0}, o, 0.49), 0);
  EXPECT_EQ(sample(std::vector<float>{0, 0, 0, 0}, o, 0.51), 1);
  EXPECT_EQ(sample(std::vector<float>{0, 0, 0, 0}, o, 0.999), 1);
}

// The definition, by sorting.
int32_t sorted_sample(const std::vector<float>& logits, const SamplingOptions& o, double uniform) {
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto at = [&](int32_t token) { return logits[static_cast<size_t>(token)]; };
  std::ranges::stable_sort(order, [&](int32_t a, int32_t b) { return at(a) > at(b); });
  if (o.top_k > 0) order.resize(std::min(order.size(), static_cast<size_t>(o.top_k)));
  std::vector<double> mass(1, 0);
  for (const int32_t token : order) {
    mass.push_back(mass.back() + std::exp((double{at(token)} - at(order[0])) / o.temperature));
  }
  size_t kept = 1;
  while (kept < order.size() && mass[kept] < o.top_p * mass.back()) ++kept;
  size_t drawn = 1;
  while (drawn < kept && mass[drawn] <= uniform * mass[kept]) ++drawn;
  return order[drawn - 1];
}

TEST(Sample, EqualsTheDefinitionBySorting) {
  for (const int64_t vocabulary : {1, 2, 3, 1000}) {
    std::vector<float> logits;
    for (uint64_t i = 0; i < static_cast<uint64_t>(vocabulary); ++i) {
      // Few values, so that there are ties.
      logits.push_back(static_cast<float>(philox(7, i)[0] % 64) / 8);
    }
    for (const double top_p : {1.0, 0.9, 0.5, 0.01}) {
      for (const int64_t top_k : {0, 1, 7, 5000}) {
        SamplingOptions o;
        o.top_p = top_p;
        o.top_k = top_k;
        o.temperature = 0.7;
        for (double u = 0; u < 1; u += 0.0123) {
          EXPECT_EQ(sample(logits, o, u), sorted_sample(logits, o, u))
              << vocabulary << " tokens, top-p " << top_p << ", top-k " << top_k << ", at " << u;
        }
      }
    }
  }
}

TEST(Sample, TakesAVocabularyOfAMillion) {
  std::vector<float> logits(size_t{1} << 20U, 1);
  logits[345678] = 2;
  EXPECT_EQ(sample(logits, {}, 0), 345678);
  EXPECT_EQ(sample(logits, {}, 0.9999999), (int32_t{1} << 20) - 1);
}

}  // namespace
}  // namespace anabranch
