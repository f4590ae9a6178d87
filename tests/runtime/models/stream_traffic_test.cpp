// Streams over ranks: what travels, and what they are said to cost.
#include <functional>
#include <memory>

#include <gtest/gtest.h>

#include "runtime/models/cmollm.h"
#include "runtime/models/parascale.h"
#include "runtime/training_state.h"

namespace anabranch {
namespace {

constexpr int64_t kWidth = 8, kStreams = 4, kLayers = 2, kTokens = 24;

Gpt2Options backbone(DType type) {
  Gpt2Options o;
  o.layers = kLayers;
  o.width = kWidth;
  o.heads = 2;
  o.context = kTokens;
  o.vocabulary = 40;
  o.compute = type;
  return o;
}

CmollmKeys keys_of(GateVariant variant) {
  CmollmKeys keys;
  keys.streams = kStreams;
  keys.variant = variant;
  return keys;
}

// Bytes of the larger buffer of each collective of one forward and backward, by kind.
std::function<int64_t(CollectiveKind)> step_bytes(Model& model, Group& world) {
  const Config config;
  TrainingState state(model, config, FlatStore::Options{}, nullptr);
  Tensor ids({1, kTokens}, DType::kI32);
  ids.fill_zero();
  Tape tape;
  const CommStats before = world.stats();
  tape.backward(model.loss(tape, {ids, ids, 0}, {1, 0}, 1));
  world.barrier();  // what came before has been counted
  return [before, after = world.stats()](CollectiveKind kind) {
    return after.of(kind).bytes - before.of(kind).bytes;
  };
}

// The received payload: an all-gather or reduce-scatter of `bytes` brings (S - 1) / S of them. Wire
// types: activations and their gradients bf16, gates and partial sums float32.
TEST(StreamParallelPayload, IsThatOfTheFormula) {
  for (const StreamLayout layout : {StreamLayout::kGather, StreamLayout::kSlice}) {
    const bool gather = layout == StreamLayout::kGather;
    for (const int ranks : {2, 4}) {
      run_on_threads(ranks, [&](Group& world) {
        Cmollm model(backbone(DType::kBF16), keys_of(GateVariant::kSimple),
                     Regions{&world, nullptr, layout});
        const auto bytes = step_bytes(model, world);
        const int64_t d = kWidth, N = kStreams, F = 4 * kWidth;
        const int64_t group_tokens = ranks * kTokens * kLayers;
        const int64_t y = gather ? F : d;  // what is reduced
        EXPECT_EQ(bytes(CollectiveKind::kAllGather), group_tokens * (2 * d + 4 * N + 2 * y));
        EXPECT_EQ(bytes(CollectiveKind::kReduceScatterSum), group_tokens * (4 * y + 4 * d + 4 * N));
        EXPECT_EQ(bytes(CollectiveKind::kAllGather) + bytes(CollectiveKind::kReduceScatterSum),
                  group_tokens * ((gather ? 30 : 12) * d + 8 * N));
        for (const CollectiveKind kind : {CollectiveKind::kAllReduceSum, CollectiveKind::kAllToAll,
                                          CollectiveKind::kBroadcast}) {
          EXPECT_EQ(bytes(kind), 0);
        }
      });
    }
  }
}

// What a rank's copies have made of other ranks' rows comes home, and its gradient goes back; ids
// go to the first span, activations to the others, whose gradients are partial sums.
TEST(CopyPayload, IsThatOfTheFormula) {
  constexpr int64_t kSpans = 2;
  for (const bool parascale : {false, true}) {
    const int64_t spans = parascale ? 1 : kSpans;
    for (const int ranks : {2, 4}) {
      run_on_threads(ranks, [&](Group& world) {
        const Regions regions{&world};
        std::unique_ptr<Model> model;
        if (parascale) {
          model = std::make_unique<Parascale>(backbone(DType::kBF16),
                                              ParascaleKeys{kStreams, 3, 0.01}, regions);
        } else {
          CmollmKeys keys = keys_of(GateVariant::kSimple);
          keys.mode = StreamMode::kPipeline;
          keys.span = kLayers / kSpans;
          model = std::make_unique<Cmollm>(backbone(DType::kBF16), keys, regions);
        }
        const auto bytes = step_bytes(*model, world);
        const int64_t d = kWidth, N = kStreams, tokens = ranks * kTokens;  // of the group
        EXPECT_EQ(bytes(CollectiveKind::kAllGather), tokens * (4 + (spans - 1) * 2 * d));
        EXPECT_EQ(bytes(CollectiveKind::kReduceScatterSum), tokens * (spans - 1) * 4 * d);
        EXPECT_EQ(bytes(CollectiveKind::kAllToAll), tokens * spans * 2 * (2 * N * d / ranks));
        for (const CollectiveKind kind :
             {CollectiveKind::kAllReduceSum, CollectiveKind::kBroadcast}) {
          EXPECT_EQ(bytes(kind), 0);
        }
      });
    }
  }
}

// Figures of the whole model, whatever is here.
TEST(StreamParallelCost, IsThatOfTheWholeModel) {
  const Gpt2Options o = backbone(DType::kF32);
  const CmollmKeys keys = keys_of(GateVariant::kAdaptive);
  const Cmollm whole(o, keys);
  CmollmKeys spread = keys;
  spread.mode = StreamMode::kPipeline;
  const Cmollm pipeline(o, spread);
  run_on_threads(3, [&](Group& world) {
    const Cmollm part(o, spread, Regions{&world});
    EXPECT_EQ(part.cost().parameters, pipeline.cost().parameters);
    EXPECT_EQ(part.products(2).macs(ProductRole::kFrontEnd),
              pipeline.products(2).macs(ProductRole::kFrontEnd));
  });
  for (const StreamLayout layout : {StreamLayout::kGather, StreamLayout::kSlice}) {
    run_on_threads(3, [&](Group& world) {
      const Cmollm part(o, keys, Regions{&world, nullptr, layout});
      EXPECT_EQ(part.cost().parameters, whole.cost().parameters);
      EXPECT_EQ(part.cost().macs(), whole.cost().macs());
      for (const ProductRole role : {ProductRole::kLinear, ProductRole::kFrontEnd}) {
        EXPECT_EQ(part.products(2).macs(role), whole.products(2).macs(role));
      }
    });
  }
}

}  // namespace
}  // namespace anabranch
