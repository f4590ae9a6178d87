#include "runtime/planner/traffic.h"

#include <cmath>

#include <gtest/gtest.h>

#include "parallel/pool_choice.h"
#include "runtime/planner/activations.h"
#include "tests/data/folder.h"
#include "tests/runtime/planner/machines.h"

namespace anabranch {
namespace {

constexpr int64_t kVocabulary = 100;

// Bytes that a rank receives in a step at one moment.
double received(const Config& config, const Layout& layout, const Cluster& cluster, Moment moment,
                int64_t accumulation = 1) {
  const WeightBytes weights = weight_bytes(config, kVocabulary, layout);
  double bytes = 0;
  for (const Transfer& t : transfers(config, weights, layout, accumulation)) {
    if (t.moment == moment) {
      bytes += t.calls * t.received(placement(layout, cluster, t.axis));
    }
  }
  return bytes;
}

Layout layout_of(int data, int model, StreamLayout streams = StreamLayout::kGather) {
  Layout layout;
  layout.mesh = {data, model, 1};
  layout.streams = streams;
  return layout;
}

TEST(Traffic, GradientsGoRoundARing) {
  const Config config = test::planned("type: gpt2");
  const Layout layout = layout_of(4, 1);
  const double n = weight_bytes(config, kVocabulary, layout).all.count;
  EXPECT_DOUBLE_EQ(received(config, layout, {1, 4}, Moment::kGradients), 2 * 0.75 * n * 4);
  Layout zero = layout;
  zero.zero = true;
  EXPECT_DOUBLE_EQ(received(config, zero, {1, 4}, Moment::kGradients), 0.75 * n * 4);
  EXPECT_DOUBLE_EQ(received(config, zero, {1, 4}, Moment::kWeights), 0.75 * n * 4);
  Config bf16 = config;
  bf16.train.grad_wire = GradWire::kBf16;
  EXPECT_DOUBLE_EQ(received(bf16, layout, {1, 4}, Moment::kGradients), 2 * 0.75 * n * 2);
  EXPECT_DOUBLE_EQ(received(config, layout_of(1, 1), {1, 1}, Moment::kGradients), 0);
}

// The sheet's totals with wide partial sums: 30 d q, and 12 d q for slices, 4 N q each way for
// gates.
TEST(Traffic, StreamsAreTheSheetsBytes) {
  constexpr double d = 32, N = 4, L = 2, rows = 2 * 16, accumulation = 3;
  const Config config =
      test::planned("type: cmollm, streams: 4", {"train.precision=bf16", "train.micro_batch=2"});
  for (const int S : {2, 4}) {
    const double q = (S - 1.0) / S, tokens = rows * S;  // of the group
    Layout gather = layout_of(1, S);
    gather.has_streams = true;
    EXPECT_DOUBLE_EQ(received(config, gather, {1, S}, Moment::kStreams, 3),
                     accumulation * L * tokens * q * (30 * d + 8 * N));
    Layout slice = gather;
    slice.streams = StreamLayout::kSlice;
    EXPECT_DOUBLE_EQ(received(config, slice, {1, S}, Moment::kStreams, 3),
                     accumulation * L * tokens * q * (12 * d + 8 * N));
  }
}

TEST(Traffic, ARowGoesOnceToEachRankWithOneOfItsExperts) {
  const Config kappa = test::planned("type: kappa_moe, experts: 4, moe_first: 1");
  // Of the 6 pairs of 4 experts one lies on the own rank alone, one on the other alone.
  EXPECT_DOUBLE_EQ(remote_visits(kappa, layout_of(1, 2)), 5.0 / 6);
  EXPECT_DOUBLE_EQ(remote_visits(kappa, layout_of(1, 4)), 2 * 3.0 / 4);
  const Config choice = test::planned("type: moep_msit, pool_sequences: 1");
  EXPECT_DOUBLE_EQ(remote_visits(choice, layout_of(1, 2)), 0.75);
  EXPECT_DOUBLE_EQ(remote_visits(choice, layout_of(1, 1)), 0);
  // One layer, 16 rows: rows there, z of two slots back, and both gradients; C 32, fp32. Places of
  // slots are an id and a score, their gradient a score.
  const double rows = 16 * (5.0 / 6) * 32 * 4, slots = 16 * 2 * 0.5;
  EXPECT_DOUBLE_EQ(received(kappa, layout_of(1, 2), {1, 2}, Moment::kExperts),
                   2 * rows + 2 * slots * 32 * 4 + slots * (8 + 4));
}

// Home and back, for each token of the group q b N d / S; in, ids, then rows and wide gradients.
TEST(Traffic, CopiesComeHome) {
  constexpr double d = 32, N = 4, rows = 2 * 16;
  for (const int S : {2, 4}) {
    const double q = (S - 1.0) / S, tokens = rows * S;
    const auto of = [&](const std::string& model) {
      const Config config =
          test::planned(model + ", streams: 4", {"train.precision=bf16", "train.micro_batch=2"});
      return received(config, layout_of(1, S), {1, S}, Moment::kExperts, 3);
    };
    const double home = 2 * 2 * N * d / S;
    EXPECT_DOUBLE_EQ(of("type: parascale"), 3 * tokens * q * (4 + home));
    EXPECT_DOUBLE_EQ(of("type: cmollm, mode: pipeline"), 3 * tokens * q * (4 + home));
    EXPECT_DOUBLE_EQ(of("type: cmollm, mode: pipeline, span: 1"),
                     3 * tokens * q * (4 + 2 * home + (2 + 4) * d));
  }
}

TEST(Traffic, ExpertChoiceGathersItsScores) {
  const Config config = test::planned("type: moep_msit, pool_sequences: 4");
  Layout layout = layout_of(4, 1);
  layout.mesh.pool = 4;
  // Two layers, 4 experts, 16 rows of each of 3 other ranks, fp32.
  EXPECT_DOUBLE_EQ(received(config, layout, {1, 4}, Moment::kExperts), 2 * 3 * 16 * 4 * 4);
  // Of a pool too large for that counts by digit, and how many are equal to the k-th.
  const Config large = test::planned("type: moep_msit, pool_sequences: 4", {"model.context=65536"});
  const PoolScores pool{4 * 65536, 4, 4, DType::kF32};
  const double counts = std::exp2(pool.digit_bits()) * 4 * 8;
  EXPECT_DOUBLE_EQ(received(large, layout, {1, 4}, Moment::kExperts),
                   2 * (static_cast<double>(pool.digits()) * 1.5 * counts + 3 * 4 * 8));
}

TEST(Traffic, PlacesGroupsOnHosts) {
  const Layout layout = layout_of(4, 4);
  const Cluster cluster{2, 8};
  const Placement model = placement(layout, cluster, MeshAxis::kModel);
  EXPECT_EQ((std::vector{model.ranks, model.per_host, model.groups, model.hosts()}),
            (std::vector{4, 4, 2, 1}));
  const Placement data = placement(layout, cluster, MeshAxis::kData);
  EXPECT_EQ((std::vector{data.ranks, data.per_host, data.groups, data.hosts()}),
            (std::vector{4, 2, 4, 2}));
  const Transfer ring{"", Moment::kGradients, CollectiveKind::kAllReduceSum, MeshAxis::kAll, 1600,
                      1};
  const Placement all = placement(layout, cluster, MeshAxis::kAll);
  EXPECT_DOUBLE_EQ(ring.received(all), 2 * 1500);
  EXPECT_DOUBLE_EQ(ring.from_network(all), 2 * 1500 / 8.0);
  const Transfer scatter{"", Moment::kExperts, CollectiveKind::kAllToAll, MeshAxis::kAll, 1600, 1};
  EXPECT_DOUBLE_EQ(scatter.from_network(all), 800);
  EXPECT_DOUBLE_EQ(ring.from_network(model), 0);
}

TEST(Traffic, TakesLatencyAndTheSlowerLink) {
  const Machine m = test::tiny_machine();
  const Transfer t{"", Moment::kGradients, CollectiveKind::kAllReduceSum, MeshAxis::kAll, 1e6, 1};
  EXPECT_DOUBLE_EQ(seconds_of(t, {1, 1, 1}, m), 0);
  EXPECT_NEAR(seconds_of(t, {2, 2, 1}, m), 2 * 1e-5 + 1e6 / 1e9, 1e-12);
  EXPECT_NEAR(seconds_of(t, {4, 2, 1}, m), 2 * (1e-5 + 1e-4) + 1.5e6 / 1e8, 1e-9);
  // One rank a host has one of two devices' links.
  EXPECT_NEAR(seconds_of(t, {2, 1, 2}, m), 2 * 1e-4 + 1e6 / 0.5e8, 1e-9);
  Machine alone = m;
  alone.links.pop_back();
  test::expect_error(Fault::kConfig, {"no link of level network"}, [&] {
    (void)seconds_of(t, {4, 2, 1}, alone);
  });
}

}  // namespace
}  // namespace anabranch
