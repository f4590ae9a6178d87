// Streams over ranks: what travels, and what they are said to cost.
#include <gtest/gtest.h>

#include "runtime/models/cmollm.h"
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

// The received payload: an all-gather or reduce-scatter of `bytes` brings (S - 1) / S of them. Wire
// types: activations and their gradients bf16, gates and partial sums float32.
TEST(StreamParallelPayload, IsThatOfTheFormula) {
  for (const StreamLayout layout : {StreamLayout::kGather, StreamLayout::kSlice}) {
    const bool gather = layout == StreamLayout::kGather;
    for (const int ranks : {2, 4}) {
      run_on_threads(ranks, [&](Group& world) {
        Cmollm model(backbone(DType::kBF16), keys_of(GateVariant::kSimple),
                     Regions{&world, nullptr, layout});
        const Config config;
        TrainingState state(model, config, FlatStore::Options{}, nullptr);
        Tensor ids({1, kTokens}, DType::kI32);
        ids.fill_zero();
        Tape tape;
        const CommStats before = world.stats();
        tape.backward(model.loss(tape, {ids, ids, 0}, {1, 0}, 1));
        world.barrier();  // what came before has been counted
        const CommStats after = world.stats();
        const auto bytes = [&](CollectiveKind kind) {
          return after.of(kind).bytes - before.of(kind).bytes;
        };
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

// Figures of the whole model, whatever is here.
TEST(StreamParallelCost, IsThatOfTheWholeModel) {
  const Gpt2Options o = backbone(DType::kF32);
  const CmollmKeys keys = keys_of(GateVariant::kAdaptive);
  const Cmollm whole(o, keys);
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
