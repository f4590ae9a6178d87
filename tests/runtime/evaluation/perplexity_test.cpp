// Loss over sliding windows: the figure of windows side by side where they do not overlap, that of
// each token by itself where they move by one, and on any number of ranks.
#include <cmath>

#include <gtest/gtest.h>

#include "core/nn/init.h"
#include "data/validation.h"
#include "runtime/evaluator.h"
#include "runtime/models/registry.h"
#include "tests/data/shard/text_set.h"
#include "tests/support/tensors.h"

namespace anabranch {
namespace {

constexpr int64_t kContext = 12;

class Perplexity : public testing::Test {
 protected:
  Perplexity() {
    test::spill(folder_.path("text.jsonl"), test::json_lines(test::documents(40, 7, 30)));
    build_shards(test::byte_tokenizer("bytes"),
                 test::build_options(folder_.path("data"), {folder_.path("text.jsonl")}));
    data_.emplace(Dataset::open(folder_.path("data")));
  }

  [[nodiscard]] const DataSource& source() const { return data_->sources()[0]; }

  [[nodiscard]] std::unique_ptr<Model> made() const {
    Config config;
    config.model.layers = 2;
    config.model.width = 16;
    config.model.heads = 2;
    config.model.context = kContext;
    config.train.precision = Precision::kFp64;
    fill_derived(config);
    std::unique_ptr<Model> model = make_model(config, kVocabulary);
    model->visit([](Param& w) {
      if (w.init.kind == Init::Kind::kNormal) w.init.value = 0.5F;  // losses far apart
      allocate(w, DType::kF64);
      initialise(w, 3);
    });
    return model;
  }

  [[nodiscard]] EvalReport measure(int64_t stride, Group& world, int64_t max_tokens = 0) const {
    const Validation split(source(), kVocabulary,
                           {.T = kContext,
                            .micro_batch = 4,
                            .rank = world.rank(),
                            .ranks = world.size(),
                            .max_tokens = max_tokens,
                            .stride = stride});
    int64_t i = 0;
    const auto next = [&](MicroBatch& batch) {
      if (i == split.batches()) return false;
      const Batch from = split.at(i++);
      batch = {from.inputs, from.targets, 0};
      return true;
    };
    return evaluate(*made(), next, std::vector<int32_t>(kVocabulary, 2), world);
  }

  [[nodiscard]] EvalReport alone(int64_t stride, int64_t max_tokens = 0) const {
    return measure(stride, *self_group(), max_tokens);
  }

  // Each token given those before it, from the window's beginning on.
  [[nodiscard]] double by_hand(int64_t stride) const {
    const auto model = made();
    std::vector<int32_t> tokens(static_cast<size_t>(source().val.tokens()));
    source().val.read(0, std::ssize(tokens), tokens.data());
    double nats = 0;
    for (int64_t t = 1; t < std::ssize(tokens); ++t) {
      const int64_t over = std::max<int64_t>(t - kContext, 0);
      const int64_t first = (over + stride - 1) / stride * stride;
      const Tensor inputs =
          Tensor::of<int32_t>({1, t - first}, {tokens.begin() + first, tokens.begin() + t});
      Tensor targets({1, t - first}, DType::kI32);
      std::ranges::fill(targets.span<int32_t>(), -1);
      targets.span<int32_t>().back() = tokens[static_cast<size_t>(t)];
      nats += test::values(model->token_losses({inputs, targets, 0})).back();
    }
    return nats / static_cast<double>(tokens.size() - 1);
  }

  static constexpr int64_t kVocabulary = 258;

  const test::Folder folder_;
  std::optional<Dataset> data_;
};

TEST_F(Perplexity, AStrideOfTheContextIsSideBySide) {
  const EvalReport whole = alone(0), strided = alone(kContext);
  EXPECT_EQ(strided.loss, whole.loss);
  EXPECT_EQ(strided.tokens, source().val.tokens() - 1);
  EXPECT_NEAR(whole.loss, by_hand(kContext), 1e-12 * whole.loss);
}

TEST_F(Perplexity, EveryStrideIsTheLoopByHand) {
  for (const int64_t stride : {1, 5, 11}) {
    const EvalReport report = alone(stride);
    EXPECT_NEAR(report.loss, by_hand(stride), 1e-12 * report.loss) << stride;
    EXPECT_EQ(report.tokens, source().val.tokens() - 1) << stride;
    EXPECT_NEAR(report.perplexity, std::exp(report.loss), 1e-12 * report.perplexity);
    EXPECT_NEAR(report.bits_per_byte, report.loss / std::log(2.0) / 2, 1e-12 * report.loss);
  }
}

TEST_F(Perplexity, RanksShareTheWindows) {
  for (const int64_t stride : {1, 5, 12}) {
    const EvalReport one = alone(stride);
    run_on_threads(2, [&, stride](Group& world) {
      const EvalReport two = measure(stride, world);
      EXPECT_EQ(two.tokens, one.tokens) << stride;
      EXPECT_NEAR(two.loss, one.loss, 1e-12 * one.loss) << stride;
      EXPECT_NEAR(two.bits_per_byte, one.bits_per_byte, 1e-12 * one.loss) << stride;
    });
  }
}

TEST_F(Perplexity, MostTokensAreWholeWindows) {
  EXPECT_EQ(alone(12, 40).tokens, 36);
  EXPECT_EQ(alone(5, 40).tokens, 12 + 25);
  EXPECT_EQ(alone(5, 1).tokens, 12);
}

}  // namespace
}  // namespace anabranch
