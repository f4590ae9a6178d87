// What the planner says of layouts over several ranks against what ranks as threads hold and send.
#include <algorithm>
#include <memory>

#include <gtest/gtest.h>

#include "runtime/bench/random_step.h"
#include "runtime/config/validate_parallel.h"
#include "runtime/planner/plan.h"
#include "tests/support/tolerance.h"

namespace anabranch {
namespace {

constexpr int64_t kVocabulary = 300;

// Of the fullest rank; and bytes of the larger buffer of each collective of a step, of rank 0.
struct Measured {
  double kept = 0, peak = 0;
  CommStats before, after;

  [[nodiscard]] double bytes(CollectiveKind kind) const {
    return static_cast<double>(after.of(kind).bytes - before.of(kind).bytes);
  }
};

Measured measure(const Config& config, int ranks) {
  std::vector<Measured> all(static_cast<size_t>(ranks));
  run_on_threads(ranks, [&](Group& world) {
    Measured& mine = all[static_cast<size_t>(world.rank())];
    RankContext context;
    context.rank = world.rank();
    context.size = ranks;
    context.pool = std::make_shared<Pool>();
    RandomStep step(config, kVocabulary, world, context);
    const double ids = static_cast<double>(2 * 4 * config.train.micro_batch * config.model.context);
    mine.kept = static_cast<double>(context.pool->usage().live) - ids;
    mine.before = world.stats();
    (void)step.run();
    mine.after = world.stats();
    mine.peak = static_cast<double>(context.pool->usage().peak);
    world.barrier();
  });
  for (const Measured& other : all) {
    all[0].kept = std::max(all[0].kept, other.kept);
    all[0].peak = std::max(all[0].peak, other.peak);
  }
  return all[0];
}

// Activations weigh more than weights.
Config run_of(const std::string& model, int ranks, const std::string& parallel,
              const std::string& precision) {
  return parse_config("data: {path: none}\nmodel: {width: 64, heads: 4, context: 128, " + model +
                          "}\nparallel: {" + parallel +
                          "}\ntrain: {steps: 1, batch_tokens: " + std::to_string(1024 * ranks) +
                          ", micro_batch: 8, precision: " + precision + "}\n",
                      "regions");
}

Layout layout_of(const Config& config, int ranks) {
  Layout layout;
  const auto model = static_cast<int>(std::max<int64_t>(config.parallel.model.value, 1));
  layout.mesh = mesh_shape(ranks, model, pool_sequences(config.model), config.train.micro_batch);
  layout.has_streams = has_streams(config.model) && model > 1;
  const bool slice = stream_layout(config, model) == StreamLayoutChoice::kSlice;
  layout.streams = slice ? StreamLayout::kSlice : StreamLayout::kGather;
  layout.zero = config.parallel.zero > 0;
  return layout;
}

double planned_bytes(const std::vector<Transfer>& all, CollectiveKind kind) {
  double bytes = 0;
  for (const Transfer& t : all) bytes += t.kind == kind ? t.calls * t.bytes : 0;
  return bytes;
}

void expect_rank(const std::string& model, int ranks, const std::string& parallel,
                 const std::string& precision = "fp32") {
  const Config config = run_of(model, ranks, parallel, precision);
  const Layout layout = layout_of(config, ranks);
  const std::string name = model + ": " + layout.name() + ", " + precision;
  const WeightBytes weights = weight_bytes(config, kVocabulary, layout);
  const RankMemory memory = rank_memory(weights, config, kVocabulary, layout);
  const Measured real = measure(config, ranks);
  EXPECT_NEAR(memory.kept() / real.kept, 1, test::kPlannedWeights.relative) << name;
  const double activations = real.peak - real.kept;
  EXPECT_NEAR(memory.activations / activations, 1, test::kPlannedMemory.relative) << name;
  EXPECT_GE(memory.reserved(), real.peak) << name;
  const std::vector<Transfer> sent = transfers(config, weights, layout, 1);
  for (const CollectiveKind kind :
       {CollectiveKind::kAllGather, CollectiveKind::kReduceScatterSum}) {
    EXPECT_DOUBLE_EQ(planned_bytes(sent, kind), real.bytes(kind)) << name << ", " << name_of(kind);
  }
}

TEST(PlannedRegions, AreTheAllocatorsAndTheWiresForStreams) {
  for (const char* layout : {"gather", "slice"}) {
    const std::string how = std::string("stream_layout: ") + layout;
    expect_rank("type: cmollm, layers: 3, streams: 4", 2, "model: 2, " + how);
    expect_rank("type: cmollm, layers: 3, streams: 4", 2, "model: 2, " + how, "bf16");
    expect_rank("type: cmollm, layers: 3, streams: 4", 4, "model: 4, " + how);
  }
}

TEST(PlannedRegions, AreTheAllocatorsAndTheWiresForCopies) {
  const std::string pipeline = "type: cmollm, mode: pipeline, layers: 3";
  expect_rank(pipeline + ", streams: 4", 2, "model: 2");
  expect_rank(pipeline + ", streams: 4, span: 1", 4, "model: 4");
  expect_rank(pipeline + ", streams: 3, span: 2, variant: simple", 2, "model: 2", "bf16");
  expect_rank("type: parascale, layers: 3, streams: 4", 2, "model: 2");
  expect_rank("type: parascale, layers: 3, streams: 3", 2, "model: 2");
}

TEST(PlannedRegions, AreTheAllocatorsForExperts) {
  expect_rank("type: kappa_moe, layers: 4, experts: 4", 2, "model: 2");
  expect_rank("type: kappa_moe, layers: 4, experts: 8", 4, "model: 4", "bf16");
  expect_rank("type: moep_msit, layers: 3, pool_sequences: 8, expert_width: 96", 2, "model: 2");
  expect_rank("type: moep_msit, layers: 3, pool_sequences: 16, expert_width: 96", 2, "model: 1");
}

// Whole matrices dealt to 3 ranks leave their segments padded, on a rank with fewer too.
TEST(PlannedRegions, AreTheAllocatorsForDividedMatrices) {
  constexpr int kRanks = 3;
  for (const char* model : {"type: gpt2, layers: 2", "type: kappa_moe, layers: 4, experts: 4"}) {
    Config config = run_of(model, kRanks, "zero: 1", "bf16");
    config.optim.matrix = MatrixOptimizer::kAurora;
    const Layout layout = layout_of(config, kRanks);
    const WeightBytes weights = weight_bytes(config, kVocabulary, layout);
    const RankMemory memory = rank_memory(weights, config, kVocabulary, layout);
    EXPECT_NEAR(memory.kept() / measure(config, kRanks).kept, 1, test::kPlannedWeights.relative)
        << model;
  }
}

}  // namespace
}  // namespace anabranch
