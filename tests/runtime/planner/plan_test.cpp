#include "runtime/planner/plan.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/planner/scale.h"
#include "tests/data/folder.h"
#include "tests/runtime/planner/machines.h"
#include "tests/support/refusal.h"

namespace anabranch {
namespace {

using testing::HasSubstr;

constexpr int64_t kVocabulary = 100;

std::string refusal(const Config& config, const Cluster& cluster, int model,
                    StreamLayout streams = StreamLayout::kGather) {
  for (const LayoutChoice& c : layouts(config, cluster)) {
    if (c.layout.mesh.model == model && c.layout.streams == streams) return c.refused;
  }
  return "none";
}

TEST(Layouts, EveryLegalOneIsThereAndIllegalOnesSayWhy) {
  const Config gpt2 = test::planned("type: gpt2");
  EXPECT_EQ(refusal(gpt2, {1, 4}, 1), "");
  EXPECT_THAT(refusal(gpt2, {1, 4}, 2), HasSubstr("no part to split"));
  const Config kappa = test::planned("type: kappa_moe, experts: 4");
  for (const int m : {1, 2, 4}) EXPECT_EQ(refusal(kappa, {1, 8}, m), "");
  EXPECT_THAT(refusal(kappa, {1, 8}, 8), HasSubstr("more than model.experts 4"));
  Config six = kappa;
  six.train.batch_tokens = 96;  // 6 sequences
  EXPECT_THAT(refusal(six, {1, 6}, 4), HasSubstr("must divide them"));
  const Config streams = test::planned("type: cmollm, streams: 3, ffn_width: 100");
  EXPECT_EQ(refusal(streams, {1, 4}, 2), "");
  EXPECT_EQ(refusal(streams, {1, 4}, 4, StreamLayout::kSlice), "");
  EXPECT_THAT(refusal(streams, {1, 4}, 4), HasSubstr("more than model.streams 3"));
  EXPECT_THAT(refusal(streams, {1, 8}, 8, StreamLayout::kSlice), HasSubstr("does not divide"));
  test::expect_error(Fault::kConfig, {"not a multiple"}, [&] { (void)layouts(kappa, {1, 5}); });
}

TEST(Layouts, PartsAreThoseOfTheModelsOwnParameters) {
  const Config streams = test::planned("type: cmollm, streams: 4, ffn_width: 64");
  const auto counts = [&](int m, StreamLayout how) {
    Layout layout;
    layout.mesh = {1, m, 1};
    layout.streams = how;
    layout.has_streams = true;
    return weight_bytes(streams, kVocabulary, layout).data.count;
  };
  const double kernels = 2 * 4 * (64.0 * 32 + 64), down = 2 * 64.0 * 32;
  EXPECT_DOUBLE_EQ(counts(2, StreamLayout::kGather), kernels / 2);
  EXPECT_DOUBLE_EQ(counts(2, StreamLayout::kSlice), (kernels + down) / 2);
  EXPECT_DOUBLE_EQ(counts(3, StreamLayout::kGather), kernels / 2);  // the fullest has two of four
}

TEST(Layouts, CopiesOfTheInputLieOverRanksWhole) {
  const Config pipeline = test::planned("type: cmollm, mode: pipeline, streams: 3");
  const Config parascale = test::planned("type: parascale, streams: 3, prefix: 8");
  for (const Config& config : {pipeline, parascale}) {
    EXPECT_EQ(refusal(config, {1, 4}, 2), "");
    EXPECT_THAT(refusal(config, {1, 4}, 4), HasSubstr("more than model.streams 3"));
    EXPECT_EQ(refusal(config, {1, 4}, 2, StreamLayout::kSlice), "none");
    Layout layout;
    layout.mesh = {1, 2, 1};  // the fullest rank has two of three
    const double map = 32 * 32 + 32, prefixes = 2 * 2 * 8 * 32;
    EXPECT_DOUBLE_EQ(weight_bytes(config, kVocabulary, layout).data.count,
                     2 * (config.model.type == ModelType::kCmollm ? map : prefixes));
  }
}

TEST(Plan, DoesNotTimeARunOfAnyLayout) {
  const Config config = test::planned("type: gpt2", {"train.deterministic=layout"});
  EXPECT_THAT(test::refusal([&] {
                (void)make_plan(config, kVocabulary, {1, 2}, test::tiny_machine());
              }),
              HasSubstr("plan the run with --set train.deterministic=run"));
}

// Nothing is gained where memory is plenty: rows travel, and an uneven rank runs more of them.
TEST(Plan, CopiesStayTogetherWhereTheyFit) {
  const Config config = test::planned("type: cmollm, mode: pipeline, streams: 3");
  const Plan plan = make_plan(config, kVocabulary, {1, 2}, test::tiny_machine());
  ASSERT_NE(plan.best(), nullptr);
  EXPECT_EQ(plan.best()->layout.mesh.model, 1);
  const LayoutPlan *spread = nullptr, *whole = nullptr;
  for (const LayoutPlan& p : plan.layouts) {
    if (!p.legal() || p.layout.zero) continue;
    (p.layout.mesh.model == 2 ? spread : whole) = &p;
  }
  ASSERT_TRUE(spread != nullptr && whole != nullptr);
  EXPECT_GT(spread->seconds.attention, whole->seconds.attention);
  EXPECT_GT(spread->seconds.products, whole->seconds.products);
  EXPECT_GT(spread->seconds.regions, whole->seconds.regions);
  EXPECT_LT(spread->memory.weights, whole->memory.weights);
}

const LayoutPlan& of_model(const Plan& plan, int model, bool zero) {
  const auto at = std::ranges::find_if(plan.layouts, [&](const LayoutPlan& p) {
    return p.layout.mesh.model == model && p.layout.zero == zero && p.legal();
  });
  EXPECT_NE(at, plan.layouts.end());
  return *at;
}

TEST(Plan, TheBestComesFirstAndLosersSayWhy) {
  const Config config = test::planned("type: kappa_moe, experts: 4, moe_first: 0");
  const Plan plan = make_plan(config, kVocabulary, {2, 2}, test::tiny_machine());
  ASSERT_NE(plan.best(), nullptr);
  EXPECT_EQ(plan.layouts.size(), 6U);
  double last = 0;
  for (const LayoutPlan& p : plan.layouts) {
    EXPECT_TRUE(p.fits);
    EXPECT_GE(p.seconds.total(), last);
    last = p.seconds.total();
    EXPECT_FALSE(p.why.empty());
  }
  EXPECT_THAT(plan.best()->why, HasSubstr("fastest"));
  EXPECT_THAT(plan.layouts.back().why, HasSubstr("% slower: "));
  // Over both hosts experts wait for the network, in every layout of them.
  EXPECT_GT(of_model(plan, 4, true).seconds.regions, 10 * of_model(plan, 2, true).seconds.regions);
}

TEST(Plan, ExpertsAreSpreadWhereCopiesDoNotFit) {
  const Config config =
      test::planned("type: kappa_moe, experts: 64, ffn_width: 1024, moe_first: 0");
  Machine machine = test::tiny_machine();
  const Cluster cluster{2, 2};
  machine.device.memory.value =
      0.9 * of_model(make_plan(config, kVocabulary, cluster, machine), 1, true).memory.total();
  const Plan plan = make_plan(config, kVocabulary, cluster, machine);
  ASSERT_TRUE(plan.best()->fits);
  EXPECT_GT(plan.best()->layout.mesh.model, 1);
  EXPECT_THAT(of_model(plan, 1, false).why, HasSubstr("does not fit: needs"));
}

TEST(Plan, AHostOfGpusHasARankADevice) {
  test::expect_error(Fault::kConfig, {"4 ranks a host", "2 devices"}, [] {
    (void)make_plan(test::planned("type: gpt2"), kVocabulary, {1, 4}, test::tiny_machine());
  });
}

TEST(Scale, MoreRanksAreFasterAndNeverMoreEfficient) {
  const Config config =
      test::planned("type: gpt2", {"train.batch_tokens=2048", "train.micro_batch=4"});
  const ScaleCurves curves =
      scale_curves(config, kVocabulary, {1, 2, 4, 8, 16, 512}, 2, test::tiny_machine());
  ASSERT_EQ(curves.weak.size(), 6U);
  for (size_t i = 0; i < curves.weak.size(); ++i) {
    const ScalePoint& weak = curves.weak[i];
    EXPECT_TRUE(weak.planned()) << weak.refused;
    EXPECT_LE(weak.efficiency, 1 + 1e-12);
    EXPECT_EQ(weak.batch_tokens, 2048 * weak.cluster.ranks());
    if (i == 0) continue;
    EXPECT_GT(weak.tokens_per_second, curves.weak[i - 1].tokens_per_second);
    EXPECT_LE(weak.efficiency, curves.weak[i - 1].efficiency + 1e-12);
  }
  EXPECT_EQ(curves.strong[4].batch_tokens, 2048);
  EXPECT_TRUE(curves.strong[4].planned());
  EXPECT_LE(curves.strong[4].efficiency, curves.weak[4].efficiency);
  EXPECT_THAT(curves.strong[5].refused, HasSubstr("the 128 sequences of a step"));
  test::expect_error(Fault::kConfig, {"no whole number of hosts"}, [&] {
    (void)scale_curves(config, kVocabulary, {1, 3}, 2, test::tiny_machine());
  });
}

TEST(Scale, ADrawingHasBothCurves) {
  const Config config =
      test::planned("type: gpt2", {"train.batch_tokens=2048", "train.micro_batch=4"});
  const ScaleCurves curves = scale_curves(config, kVocabulary, {1, 2, 4}, 2, test::tiny_machine());
  const std::string svg = draw_scale(curves, "planned on tiny");
  EXPECT_THAT(svg, HasSubstr("planned on tiny"));
  EXPECT_THAT(svg, HasSubstr("weak: as many tokens a rank"));
}

}  // namespace
}  // namespace anabranch
