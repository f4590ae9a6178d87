#include "runtime/config/budget.h"

#include <array>
#include <cmath>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "runtime/config/config.h"
#include "runtime/config/validate.h"
#include "runtime/models/registry.h"
#include "tests/support/refusal.h"

namespace anabranch {
namespace {

using testing::HasSubstr;

Config config_of(std::vector<std::string> sets) {
  sets.insert(sets.begin(), {"model.preset=kappa-paper", "data.path=d"});
  return parse_config("", "c.yaml", sets);
}

std::string refusal(const std::string& text, const std::vector<std::string>& sets) {
  return test::refusal([&] { validate(parse_config(text, "c.yaml", sets)); });
}

// The step counts that the paper's runs had: the authors' files of results are named by them.
TEST(Budget, TwelveLayersTakeThePapersSteps) {
  const Config baseline = config_of({"model.depth=12", "model.kappa=false"});
  EXPECT_EQ(baseline.train.steps, 11297);
  EXPECT_EQ(baseline.train.batch_tokens, 1 << 19);
  EXPECT_EQ(config_of({"model.depth=12"}).train.steps, 11303);
  EXPECT_EQ(config_of({}).train.steps, 11303);  // the depth that a recipe starts from
  // either slope alone: half of the 6 steps
  EXPECT_EQ(config_of({"model.kappa_alpha=false"}).train.steps, 11300);
  EXPECT_EQ(config_of({"model.kappa_b=false"}).train.steps, 11300);
}

// N, tokens, batch and steps by hand, from the parameters of each size.
struct Size {
  int64_t depth;
  double parameters, tokens;  // in billions
  int64_t batch, steps, kappa_steps;
};

TEST(Budget, EveryDepthByHand) {
  for (const Size& want :
       {Size{8, 0.5390, 2.695, 1 << 18, 10279, 10287}, Size{10, 0.9062, 4.531, 1 << 19, 8642, 8647},
        Size{12, 1.1847, 5.923, 1 << 19, 11297, 11303},
        Size{14, 1.5983, 7.991, 1 << 19, 15242, 15248}, Size{16, 0.918, 4.59, 1 << 19, 8755, 8756},
        Size{20, 1.655, 8.27, 1 << 20, 7889, 7890}, Size{24, 2.707, 13.54, 1 << 20, 12909, 12910},
        Size{28, 4.133, 20.66, 1 << 20, 19706, 19707}}) {
    const std::string depth = "model.depth=" + std::to_string(want.depth);
    const Config plain = config_of({depth, "model.kappa=false"}), kappa = config_of({depth});
    const RunSize size = size_run(plain.model, plain.train);
    const double parameters = scaling_parameters(plain.model, 32768, Budget::kPaper);
    EXPECT_NEAR(parameters / 1e9, want.parameters, want.depth < 16 ? 5e-5 : 6e-4) << depth;
    EXPECT_NEAR(size.tokens / 1e9, want.tokens, 6e-3) << depth;
    EXPECT_EQ(plain.train.batch_tokens, want.batch) << depth;
    EXPECT_EQ(kappa.train.batch_tokens, want.batch) << depth;
    EXPECT_EQ(plain.train.steps, want.steps) << depth;
    EXPECT_EQ(kappa.train.steps, want.kappa_steps) << depth;
  }
}

TEST(Budget, OtherNumbersOfExperts) {
  EXPECT_EQ(config_of({"model.depth=10", "model.experts=48", "model.kappa=false"}).train.steps,
            10369);
  EXPECT_EQ(config_of({"model.depth=10", "model.experts=64", "model.kappa=false"}).train.steps,
            11826);
}

// Mixtures below a fifth of the layers: the authors count their experts whole.
TEST(Budget, TheAuthorsCountFewMixturesWhole) {
  for (const auto& [depth, parameters] : std::vector<std::pair<std::string, double>>{
           {"16", 1.504}, {"20", 2.570}, {"24", 4.026}, {"28", 5.927}}) {
    const ModelConfig model = config_of({"model.depth=" + depth}).model;
    EXPECT_NEAR(scaling_parameters(model, 32768, Budget::kAuthors) / 1e9, parameters, 6e-4);
  }
  const ModelConfig row = config_of({"model.depth=14"}).model;
  EXPECT_EQ(scaling_parameters(row, 32768, Budget::kAuthors),
            scaling_parameters(row, 32768, Budget::kPaper));
}

// With every expert chosen, all parameters count but scalars and tables.
TEST(Budget, CountsWhatAModelHas) {
  Config config = config_of({"model.depth=8", "model.layers=5", "model.width=48", "model.heads=3",
                             "model.experts=2", "train.precision=fp32"});
  double parameters = 0;
  make_model(config, 77)->visit([&](Param& w) {
    if (w.role != Role::kEmbedding && w.shape.count() > 1) {
      parameters += static_cast<double>(w.shape.count());
    }
  });
  EXPECT_EQ(scaling_parameters(config.model, 77, Budget::kPaper), parameters);
  config.model.kappa.kappa_b = false;
  EXPECT_LT(scaling_parameters(config.model, 77, Budget::kPaper), parameters);
}

TEST(Budget, GivenKeysWin) {
  EXPECT_EQ(config_of({"train.batch_tokens=1048576"}).train.steps, 5651);
  const Config steps = config_of({"train.steps=7"});
  EXPECT_EQ(steps.train.steps, 7);
  EXPECT_EQ(steps.train.batch_tokens, 1 << 19);
  const Config tokens = config_of({"train.tokens=1e9"});
  EXPECT_EQ(tokens.train.steps, 0);
  EXPECT_EQ(tokens.train.batch_tokens, 1 << 19);
  EXPECT_EQ(config_of({"train.budget=none"}).train.steps, 0);
  EXPECT_EQ(config_of({"train.budget_ratio=10"}).train.steps, 22606);  // of 11303.45 twice
  EXPECT_LT(config_of({"train.budget_vocabulary=16384"}).train.steps, 11303);
}

TEST(Budget, EpochsAreALengthToo) {
  EXPECT_EQ(config_of({"train.epochs=2"}).train.steps, 0);
  EXPECT_EQ(refusal("", {"model.preset=kappa-paper", "data.path=d", "train.epochs=2"}), "accepted");
}

TEST(Budget, RefusesWhatItCannotSize) {
  const char* const dense =
      "data: {path: d}\nmodel: {preset: gpt2-85m}\ntrain: {steps: 3, batch_tokens: 1024}\n";
  EXPECT_EQ(refusal(dense, {}), "accepted");
  EXPECT_THAT(refusal(dense, {"train.budget=paper"}),
              HasSubstr("train.budget paper is for model.type kappa_moe, and it is gpt2"));
  const char* const paper = "data: {path: d}\nmodel: {preset: kappa-paper}\n";
  EXPECT_EQ(refusal(paper, {}), "accepted");
  EXPECT_THAT(refusal(paper, {"train.budget_ratio=0.001", "train.batch_tokens=10000000000"}),
              HasSubstr("train.budget paper gives 1185253 tokens, less than a step"));
  TrainConfig train;
  check_budget_vocabulary(train, 4096);  // no budget: nothing was counted
  train.budget = Budget::kPaper;
  check_budget_vocabulary(train, 32768);
  EXPECT_THROW(check_budget_vocabulary(train, 4096), Error);
}

}  // namespace
}  // namespace anabranch
