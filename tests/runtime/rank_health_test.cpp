#include "runtime/rank_health.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "parallel/topology.h"
#include "runtime/replica_check.h"
#include "tests/data/folder.h"
#include "tests/runtime/training.h"

namespace anabranch {
namespace {

TEST(SlowRank, IsOneThatStaysSlow) {
  SlowRank slow;
  EXPECT_FALSE(slow.add({1, 1.2, 1}));
  EXPECT_DOUBLE_EQ(slow.ratio(), 1.2);
  EXPECT_FALSE(slow.add({1, 1, 3}));  // once
  EXPECT_EQ(slow.rank(), 2);
  EXPECT_DOUBLE_EQ(slow.ratio(), 3);
  EXPECT_FALSE(slow.add({3, 1, 1}));  // another
  EXPECT_TRUE(slow.add({2, 1, 1}));
  EXPECT_EQ(slow.rank(), 0);
  EXPECT_FALSE(slow.add({2, 1, 1}));  // said already
  EXPECT_TRUE(slow.add({2, 1, 1}));
  EXPECT_FALSE(slow.add({1, 1, 1}));
  EXPECT_FALSE(slow.add({2, 1, 1}));
}

TEST(SlowRank, OfTwoIsMeasuredByTheOther) {
  SlowRank slow;
  EXPECT_FALSE(slow.add({1, 2}));
  EXPECT_TRUE(slow.add({1, 2}));
  EXPECT_EQ(slow.rank(), 1);
  EXPECT_DOUBLE_EQ(slow.ratio(), 2);
}

std::vector<std::string> names(int ranks) {
  std::vector<std::string> all;
  for (int r = 0; r < ranks; ++r) all.push_back(join("rank ", r, " on h", r));
  return all;
}

// What the check says on each rank, which must be the same; empty: nothing.
std::string verdict(Group& world, const Mesh& mesh, const std::vector<Replica>& replicas,
                    CheckedSteps steps = {40, 20}) {
  std::string said;
  try {
    check_replicas(mesh, replicas, names(world.size()), steps);
  } catch (const Error& error) {
    EXPECT_EQ(error.fault(), Fault::kInternal);
    said = error.what();
  }
  for (const std::string& other : gather_text(world, said)) EXPECT_EQ(other, said);
  return said;
}

Tensor vector_of(float value) { return Tensor::of<float>({3}, {1, 2, value}); }

TEST(ReplicaCheck, TheOneThatDiffersIsNamedByMajority) {
  run_on_threads(3, [](Group& world) {
    const Mesh mesh(world, {3, 1, 1});
    const float mine = world.rank() == 1 ? 7 : 3;
    const std::vector<Replica> equal{{"a", ReduceGroup::kAll, {vector_of(3)}}};
    EXPECT_EQ(verdict(world, mesh, equal), "");
    const std::vector<Replica> one{{"a", ReduceGroup::kAll, {vector_of(3)}},
                                   {"b", ReduceGroup::kAll, {vector_of(3), vector_of(mine)}},
                                   {"c", ReduceGroup::kAll, {vector_of(mine)}}};
    EXPECT_EQ(verdict(world, mesh, one),
              "weights that ranks share are not equal after step 40, but were after step 20: rank "
              "1 on h1 differs from the other 2 ranks in b and 1 other parameter. Memory or "
              "processor of a host is faulty: leave it out, remove checkpoints later than step "
              "20, and run again.");
    EXPECT_THAT(verdict(world, mesh, one, {0, -1}),
                testing::HasSubstr("not equal after step 0, where this job begins: rank 1"));
    const std::vector<Replica> all{
        {"a", ReduceGroup::kAll, {vector_of(static_cast<float>(world.rank()))}}};
    EXPECT_THAT(verdict(world, mesh, all),
                testing::HasSubstr("rank 0 on h0, rank 1 on h1, rank 2 on h2 differ from each "
                                   "other in a."));
  });
}

TEST(ReplicaCheck, SplitParametersAreComparedAlongData) {
  run_on_threads(4, [](Group& world) {
    const Mesh mesh(world, {2, 2, 1});
    const auto part = [&](float value) {
      return std::vector<Replica>{{"expert", ReduceGroup::kData, {vector_of(value)}},
                                  {"norm", ReduceGroup::kAll, {vector_of(1)}}};
    };
    const auto column = static_cast<float>(world.rank() % 2);
    EXPECT_EQ(verdict(world, mesh, part(column)), "");
    // Only ranks 1 and 3 have these parts, and all four hear of it.
    EXPECT_THAT(verdict(world, mesh, part(world.rank() == 3 ? 9 : column)),
                testing::HasSubstr("rank 1 on h1, rank 3 on h3 differ from each other in expert."));
  });
}

// One bit of one rank's weights, in a run's model.
TEST(ReplicaCheck, AFlippedBitOfAModelIsFoundByName) {
  const test::TrainingFolder folder;
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    Config config = folder.config("run", 4);
    config.train.precision = precision;
    run_on_threads(3, [&](Group& world) {
      RankContext context;
      context.pool = std::make_shared<Pool>();
      TrainStep step(config, plan_batch(config, 3), 300, world, context);
      const auto check = [&] {
        return verdict(world, step.mesh(), replicas_of(step.model(), true));
      };
      EXPECT_EQ(check(), "");
      const auto flip = [&](bool master) {
        if (world.rank() != 2) return;
        step.model().visit([&](Param& w) {
          if (!w.name.ends_with("c_attn.weight") || !w.name.starts_with("h.1.")) return;
          std::byte& last = (master ? w.master : w.value).raw()[5];
          last ^= std::byte{1};
        });
      };
      for (const bool master : {false, true}) {
        flip(master);
        EXPECT_THAT(check(), testing::HasSubstr("rank 2 on h2 differs from the other 2 ranks in "
                                                "h.1.attn.c_attn.weight. Memory"));
        flip(master);
        EXPECT_EQ(check(), "");
      }
    });
  }
}

// Looking changes nothing, and is done as often as asked for.
TEST(ReplicaCheck, RunsLookAsOftenAsTheyAreTold) {
  const test::TrainingFolder folder;
  const auto run = [&](int64_t every) {
    Config config = folder.config(join("run", every), 6);
    config.parallel.check_every = every;
    return test::run_training(config, {.ranks = 2});
  };
  const auto gathers = [](const test::Training& training) {
    return training.steps[0].back().comm.of(CollectiveKind::kAllGather).calls;
  };
  const test::Training never = run(0), often = run(1), seldom = run(3);
  EXPECT_EQ(often.losses(), never.losses());
  // Each look is three collectives; those before the last report are counted.
  EXPECT_EQ(gathers(often) - gathers(never), 3 * (1 + 5));
  EXPECT_EQ(gathers(seldom) - gathers(never), 3 * (1 + 1));
  EXPECT_EQ(never.steps[0].back().slowest_ratio > 0, true);
}

}  // namespace
}  // namespace anabranch
