// What the planner says of memory against what the allocator hands out in a real step.
#include <memory>

#include <gtest/gtest.h>

#include "runtime/bench/random_step.h"
#include "runtime/models/registry.h"
#include "runtime/planner/plan.h"
#include "tests/runtime/planner/machines.h"
#include "tests/support/tolerance.h"

namespace anabranch {
namespace {

constexpr int64_t kVocabulary = 300;

struct Measured {
  double kept = 0, activations = 0;
};

// Of one rank's second step; the first finds out what the tape holds.
Measured measure(const Config& config) {
  const auto group = self_group();
  RankContext context;
  context.pool = std::make_shared<Pool>();
  RandomStep step(config, kVocabulary, *group, context);
  const auto ids = static_cast<double>(2 * 4 * config.train.micro_batch * config.model.context);
  const double kept = static_cast<double>(context.pool->usage().live) - ids;
  (void)step.run();
  return {kept, static_cast<double>(context.pool->usage().peak) - kept};
}

void expect_memory(const Config& config) {
  const std::string name(word_of(config.model.type));
  const Layout alone;
  const RankMemory memory =
      rank_memory(weight_bytes(config, kVocabulary, alone), config, kVocabulary, alone);
  const Measured real = measure(config);
  EXPECT_NEAR(memory.kept() / real.kept, 1, test::kPlannedWeights.relative) << name;
  EXPECT_NEAR(memory.activations / real.activations, 1, test::kPlannedMemory.relative) << name;
  EXPECT_NEAR(memory.total() / (real.kept + real.activations), 1, test::kPlannedMemory.relative)
      << name;
  EXPECT_GE(memory.worst, real.activations) << name;
}

// Activations weigh more than weights.
Config run_of(const std::string& model, const std::string& precision = "fp32") {
  return parse_config("data: {path: none}\nmodel: {width: 64, heads: 4, context: 128, " + model +
                          "}\ntrain: {steps: 1, batch_tokens: 1024, micro_batch: 8, precision: " +
                          precision + "}\n",
                      "memory");
}

TEST(PlannedMemory, IsTheAllocatorsForDenseModels) {
  for (const char* precision : {"fp32", "bf16"}) {
    expect_memory(run_of("layers: 3", precision));
    expect_memory(run_of("layers: 6", precision));
    expect_memory(run_of("layers: 3, gelu: erf", precision));
    expect_memory(run_of("layers: 4, recompute: true", precision));
  }
}

TEST(PlannedMemory, IsTheAllocatorsForStreams) {
  for (const char* variant : {"linear", "simple", "context_aware", "multi_head", "adaptive"}) {
    expect_memory(run_of(std::string("type: cmollm, layers: 3, streams: 4, variant: ") + variant));
  }
  expect_memory(run_of("type: cmollm, layers: 3, streams: 8", "bf16"));
  expect_memory(run_of("type: cmollm, layers: 3, streams: 4, mix: post"));
  expect_memory(run_of("type: cmollm, layers: 3, streams: 4, gate_site: feature, variant: simple"));
  expect_memory(run_of("type: cmollm, layers: 3, streams: 3, mode: pipeline"));
}

TEST(PlannedMemory, IsTheAllocatorsForExperts) {
  for (const char* precision : {"fp32", "bf16"}) {
    expect_memory(run_of("type: kappa_moe, layers: 4, experts: 4", precision));
    expect_memory(run_of("type: kappa_moe, layers: 4, experts: 8, moe_first: 0", precision));
    expect_memory(
        run_of("type: moep_msit, layers: 3, pool_sequences: 8, expert_width: 96", precision));
  }
  expect_memory(run_of("type: kappa_moe, layers: 4, experts: 4, recompute: true"));
}

TEST(PlannedMemory, IsTheAllocatorsForTheBaselines) {
  expect_memory(run_of("type: parascale, layers: 3, streams: 2"));
  expect_memory(run_of("type: altup, layers: 3, blocks: 2"));
}

TEST(PlannedMemory, AMatrixOptimizerHasOneMoment) {
  Config config = run_of("type: kappa_moe, layers: 4, experts: 4");
  config.optim.matrix = MatrixOptimizer::kAurora;
  expect_memory(config);
}

// The rows that can meet at one rank are reserved for.
TEST(PlannedMemory, TheWorstCaseIsNeverBelowEvenRouting) {
  for (const char* model :
       {"type: kappa_moe, experts: 6, moe_first: 0", "type: moep_msit, pool_sequences: 4"}) {
    const Config config = test::planned(model, {"train.micro_batch=4"});
    for (const int m : {2, 4}) {
      Layout layout;
      layout.mesh = {1, m, 1};
      const double even = expert_slots(config, layout, RoutingShare::kEven);
      const double worst = expert_slots(config, layout, RoutingShare::kWorst);
      EXPECT_GE(worst, even) << model << " over " << m;
      const double all = 64.0 * m * experts_of_row(config.model);
      EXPECT_LE(worst, all) << model << " over " << m;
      EXPECT_GE(activation_bytes(config, kVocabulary, layout, RoutingShare::kWorst).peak,
                activation_bytes(config, kVocabulary, layout).peak);
    }
  }
}

TEST(PlannedMemory, DividedStateAndPartsAreCounted) {
  const Config config = test::planned("type: kappa_moe, experts: 4, moe_first: 0");
  Layout whole, parts;
  whole.mesh = {4, 1, 1};
  const WeightBytes all = weight_bytes(config, kVocabulary, whole);
  const int64_t parameters = make_model(config, kVocabulary)->cost().parameters;
  EXPECT_EQ(all.need.parameters, parameters);
  EXPECT_NEAR(all.here, static_cast<double>(parameters), 0.01 * static_cast<double>(parameters));
  whole.zero = true;
  const WeightBytes divided = weight_bytes(config, kVocabulary, whole);
  EXPECT_DOUBLE_EQ(divided.need.moments, all.need.moments / 4);
  EXPECT_EQ(divided.need.gradients, all.need.gradients);
  parts.mesh = {2, 2, 1};
  const WeightBytes half = weight_bytes(config, kVocabulary, parts);
  // Two layers, 4 experts of 3 C F and two slopes F, fp32.
  const double experts = 2 * 4 * (3 * 32 * 128 + 2 * 128);
  const double padding = 4 * FlatStore::kAlign;  // of a bucket's end over 4 ranks
  EXPECT_NEAR(all.here - half.here, experts / 2, padding);
  EXPECT_DOUBLE_EQ(half.data.count, experts / 2);
}

}  // namespace
}  // namespace anabranch
