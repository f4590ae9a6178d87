// Plans of sweeps on a machine of round numbers.
#include "runtime/sweep/sweep_plan.h"

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "runtime/planner/plan.h"
#include "tests/runtime/planner/machines.h"
#include "tests/runtime/sweep/sweeps.h"
#include "tests/support/refusal.h"
#include "tests/support/temp_dir.h"

namespace anabranch {
namespace {

using testing::HasSubstr;

class SweepPlans : public testing::Test {
 protected:
  SweepPlans() {
    std::ofstream(dir_ / "base.yaml")
        << "data: {path: none}\nmodel: {layers: 2, width: 32, heads: 2, context: 16}\n"
           "train: {steps: 36000, batch_tokens: 256, micro_batch: 1}\n";
  }

  [[nodiscard]] Sweep sweep(const std::string& rest) const {
    return expand_sweep(
        parse_sweep("base: base.yaml\nvocabulary: 100\n" + rest, (dir_ / "s.yaml").string()));
  }

  // A machine on which layers of width 512 take more memory than a device has, and those of 32 fit.
  [[nodiscard]] static Machine with_memory(double bytes) {
    Machine machine = test::tiny_machine();
    machine.device.memory.value = bytes;
    return machine;
  }

  const test::TempDir dir_;
};

TEST_F(SweepPlans, ARunTakesTheFewestRanksAndItsHoursFollow) {
  const Sweep s = sweep("seeds: [1, 2, 3]\n");
  const Machine machine = test::tiny_machine();
  const SweepPlan plan = plan_sweep(s, {1, 2}, machine, {.ranks = 1});
  const Plan alone = make_plan(s.points[0].config, 100, {1, 1}, machine);
  ASSERT_EQ(plan.points.size(), 1U);
  const PointPlan& p = plan.points[0];
  EXPECT_EQ(p.ranks, 1);
  EXPECT_EQ(p.at_once, 2);
  EXPECT_EQ(p.nodes, 1);
  EXPECT_EQ(p.runs, 3U);
  EXPECT_EQ(p.step_seconds, alone.best()->seconds.total());
  EXPECT_NEAR(p.hours, 10 * p.step_seconds, 1e-9 * p.hours);  // 36,000 steps
  EXPECT_EQ(p.rank_hours, p.hours);
  EXPECT_GT(p.headroom(), 0.9);
  // Three runs on two ranks: two at once, then the third.
  EXPECT_DOUBLE_EQ(plan.finish, 2 * p.hours);
  EXPECT_DOUBLE_EQ(plan.rank_hours, 3 * p.hours);
  EXPECT_DOUBLE_EQ(plan.busy(), 0.75);
  EXPECT_EQ(plan.schedule.size(), 3U);
}

TEST_F(SweepPlans, RunsThatEndLastAreWidenedWhileThatEndsSooner) {
  const Machine machine = test::tiny_machine();
  // One run of many tokens a step: two ranks are nearly twice as fast, and nothing else runs.
  const Sweep one = sweep("set: {model.width: 512, train.batch_tokens: 65536}\n");
  const SweepPlan wide = plan_sweep(one, {1, 2}, machine);
  EXPECT_EQ(wide.points[0].fewest, 1);
  EXPECT_EQ(wide.points[0].ranks, 2);
  EXPECT_GE(wide.points[0].efficiency, kLeastEfficiency);
  EXPECT_LT(wide.finish, plan_sweep(one, {1, 2}, machine, {.ranks = 1}).finish);
  // Two such runs fill the node: wider ones would end later.
  const Sweep two = sweep("seeds: [1, 2]\nset: {model.width: 512, train.batch_tokens: 65536}\n");
  EXPECT_EQ(plan_sweep(two, {1, 2}, machine).points[0].ranks, 1);
  // Too little work to send gradients for.
  Machine slow = machine;
  slow.links[0].curve = {{1000, 1e6, "made up"}, {1e9, 1e6, "made up"}};
  const SweepPlan narrow = plan_sweep(one, {1, 2}, slow);
  EXPECT_EQ(narrow.points[0].ranks, 1);
}

TEST_F(SweepPlans, WhatDoesNotFitSaysWhyAndIsLeftOut) {
  const Sweep s = sweep("seeds: [1, 2]\ngrid: {model.width: [32, 512]}\n");
  const SweepPlan plan = plan_sweep(s, {1, 2}, with_memory(100e6));
  EXPECT_TRUE(plan.points[0].planned()) << plan.points[0].refused;
  EXPECT_THAT(plan.points[1].refused, HasSubstr("does not fit 2 ranks: data 2 x model 1, zero 0 "));
  EXPECT_THAT(plan.points[1].refused, HasSubstr(" a rank of 0.1 GiB"));
  EXPECT_EQ(plan.runs_left_out, 2U);
  EXPECT_EQ(plan.schedule.size(), 2U);
  EXPECT_EQ(plan_sweep(s, {1, 2}, with_memory(1e12)).runs_left_out, 0U);
}

TEST_F(SweepPlans, ARunIsPlannedAsItIsConfigured) {
  // Where state divided over ranks fits and whole state does not.
  const Sweep s = sweep("grid: {model.width: [512]}\n");
  const auto bytes = [&](int zero) {
    Sweep other = s;
    other.points[0].config.parallel.zero = zero;
    return plan_sweep(other, {1, 2}, with_memory(1e12), {.ranks = 2}).points[0].memory_bytes;
  };
  ASSERT_LT(bytes(1), bytes(0));
  const Machine machine = with_memory((bytes(0) + bytes(1)) / 2);
  EXPECT_THAT(plan_sweep(s, {1, 2}, machine, {.ranks = 2}).points[0].refused,
              HasSubstr("; it fits with parallel.zero=1"));
  Sweep divided = s;
  divided.points[0].config.parallel.zero = 1;
  const SweepPlan plan = plan_sweep(divided, {1, 2}, machine);
  EXPECT_EQ(plan.points[0].ranks, 2);
  EXPECT_EQ(plan.points[0].fewest, 2);
  EXPECT_EQ(plan.points[0].layout, "data 2 x model 1, zero 1");
}

TEST_F(SweepPlans, RunsOnAPartOfAProcessorHaveThatPart) {
  Machine machine = test::tiny_machine();
  machine.device.kind = DeviceKind::kCpu;
  const Sweep s = sweep("seeds: [1, 2]\nset: {model.width: 512}\n");
  const PointPlan packed = plan_sweep(s, {1, 2}, machine, {.ranks = 1}).points[0];
  const PointPlan alone = plan_sweep(s, {1, 1}, machine, {.ranks = 1}).points[0];
  EXPECT_EQ(packed.at_once, 2);
  EXPECT_DOUBLE_EQ(packed.device_memory, 0.5 * alone.device_memory);
  EXPECT_GT(packed.step_seconds, 1.5 * alone.step_seconds);
}

TEST_F(SweepPlans, RunsThatAreDoneAreNotPlanned) {
  const Sweep s = sweep("seeds: [1, 2, 3]\ngrid: {model.layers: [2, 3]}\n");
  const SweepPlan plan =
      plan_sweep(s, {1, 1}, test::tiny_machine(), {.remaining = std::vector<size_t>{1, 5}});
  EXPECT_EQ(plan.points[0].runs, 1U);
  EXPECT_EQ(plan.points[1].runs, 1U);
  EXPECT_DOUBLE_EQ(plan.finish, plan.points[0].hours + plan.points[1].hours);
  EXPECT_EQ(plan.schedule[0].run, 5U);  // of three layers: longer
  const SweepPlan none =
      plan_sweep(s, {1, 1}, test::tiny_machine(), {.remaining = std::vector<size_t>{}});
  EXPECT_EQ(none.finish, 0);
}

TEST_F(SweepPlans, RefusesWhatItCannotPlan) {
  const Sweep s = sweep("");
  EXPECT_EQ(test::refusal([&] {
              (void)plan_sweep(s, {2, 4}, test::tiny_machine());
            }),
            "4 ranks a node, and tiny has 2 devices a host: a rank has one");
  EXPECT_EQ(test::refusal([&] {
              (void)plan_sweep(s, {2, 2}, test::tiny_machine(), {.ranks = 3});
            }),
            "3 ranks a run on 2 nodes of 2: expected a number that divides 2, or whole nodes of "
            "them");
  EXPECT_THROW((void)plan_sweep(s, {2, 2}, test::tiny_machine(), {.ranks = 6}), Error);
  const Sweep odd = sweep("set: {train.batch_tokens: 272}\n");  // 17 sequences
  EXPECT_THAT(plan_sweep(odd, {1, 2}, test::tiny_machine(), {.ranks = 2}).points[0].refused,
              HasSubstr("is not a multiple of"));
  EXPECT_EQ(plan_sweep(odd, {1, 2}, test::tiny_machine()).points[0].ranks, 1);
  const Sweep epochs = sweep("set: {train.steps: 0, train.epochs: 2}\n");
  EXPECT_EQ(plan_sweep(epochs, {1, 1}, test::tiny_machine()).points[0].refused,
            "its length is 2 epochs of none, which is not there: build it, or give --set "
            "train.epochs=0 --set train.steps=N");
}

// Every run of the papers on a cluster, within seconds.
TEST_F(SweepPlans, ThePapersSweepsFitEightNodes) {
  const Machine h200 = load_machine(std::string(AB_SOURCE_DIR) + "/configs/machines/h200.yaml");
  const Sweep s = test::tree_sweep("cmollm");
  size_t told = 0;
  const SweepPlan plan = plan_sweep(s, {8, 8}, h200, {}, [&](size_t done, size_t of) {
    EXPECT_EQ(of, s.points.size());
    told = done;
  });
  EXPECT_EQ(told, s.points.size());
  EXPECT_EQ(plan.schedule.size(), 423U);
  for (const PointPlan& p : plan.points) {
    EXPECT_TRUE(p.planned()) << s.points[p.point].id << ": " << p.refused;
    EXPECT_GE(p.efficiency, kLeastEfficiency);
    EXPECT_GE(p.headroom(), 0);
  }
  EXPECT_GT(plan.busy(), 0.9);
}

}  // namespace
}  // namespace anabranch
