// Schedules worked out by hand.
#include "runtime/sweep/list_schedule.h"

#include <algorithm>
#include <array>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"

namespace anabranch {
namespace {

using testing::ElementsAre;

const RunSlot& slot_of(const std::vector<RunSlot>& slots, size_t run) {
  for (const RunSlot& slot : slots) {
    if (slot.run == run) return slot;
  }
  throw std::runtime_error("not placed");
}

// Two nodes of four ranks.
//
//   node 0   run 0 on 4 ranks to 6 h
//   node 1   run 1 on 2 ranks to 5 h; run 2 on the other 2 to 4 h, then run 3 there to 7 h
TEST(ListSchedule, LongestFirstAndPacked) {
  const std::vector<RunSlot> slots = list_schedule({{4, 6}, {2, 5}, {2, 4}, {2, 3}}, Cluster{2, 4});
  EXPECT_THAT(slot_of(slots, 0).nodes, ElementsAre(0));
  EXPECT_THAT(slot_of(slots, 1).nodes, ElementsAre(1));
  EXPECT_THAT(slot_of(slots, 2).nodes, ElementsAre(1));
  EXPECT_THAT(slot_of(slots, 3).nodes, ElementsAre(1));
  EXPECT_EQ(slot_of(slots, 2).start, 0);
  EXPECT_EQ(slot_of(slots, 3).start, 4);
  EXPECT_EQ(slot_of(slots, 3).end, 7);
  EXPECT_EQ(finish_of(slots), 7);
}

TEST(ListSchedule, SmallRunsFillANodeBeforeTheNext) {
  const std::vector<RunSlot> slots =
      list_schedule({{1, 2}, {1, 2}, {1, 2}, {1, 2}, {1, 2}}, Cluster{3, 4});
  for (size_t r = 0; r < 4; ++r) EXPECT_THAT(slot_of(slots, r).nodes, ElementsAre(0));
  EXPECT_THAT(slot_of(slots, 4).nodes, ElementsAre(1));
  EXPECT_EQ(finish_of(slots), 2);
}

// Two nodes of two ranks.
TEST(ListSchedule, LargeRunsTakeWholeNodesAtOneTime) {
  const std::vector<RunSlot> slots =
      list_schedule({{1, 1}, {4, 2}, {2, 2.5}, {1, 4}}, Cluster{2, 2});
  EXPECT_THAT(slot_of(slots, 3).nodes, ElementsAre(0));     // 0 to 4 on one rank
  EXPECT_THAT(slot_of(slots, 2).nodes, ElementsAre(1));     // 0 to 2.5
  EXPECT_THAT(slot_of(slots, 1).nodes, ElementsAre(0, 1));  // when both are free
  EXPECT_EQ(slot_of(slots, 1).start, 4);
  EXPECT_EQ(slot_of(slots, 1).end, 6);
  EXPECT_EQ(slot_of(slots, 0).start, 6);  // nothing is moved into gaps
  EXPECT_EQ(finish_of(slots), 7);
}

TEST(ListSchedule, NoRankHasTwoRuns) {
  std::mt19937 random(7);  // NOLINT(cert-msc32-c,cert-msc51-cpp): the same runs each time
  const Cluster cluster{3, 4};
  std::vector<RunLoad> runs;
  for (int i = 0; i < 60; ++i) {
    const int ranks = std::array<int, 5>{1, 2, 4, 8, 12}[random() % 5];
    runs.push_back({ranks, 1 + static_cast<double>(random() % 8)});
  }
  const std::vector<RunSlot> slots = list_schedule(runs, cluster);
  ASSERT_EQ(slots.size(), runs.size());
  double hours = 0;
  for (const RunSlot& slot : slots) {
    hours += runs[slot.run].hours * runs[slot.run].ranks;
    for (const int node : slot.nodes) {
      int at_once = 0;
      for (const RunSlot& other : slots) {
        const bool here = std::ranges::find(other.nodes, node) != other.nodes.end();
        const bool now = other.start <= slot.start && slot.start < other.end;
        const int share = std::min(runs[other.run].ranks, cluster.ranks_per_host);
        at_once += here && now ? share : 0;
      }
      EXPECT_LE(at_once, cluster.ranks_per_host) << "node " << node << " at " << slot.start;
    }
  }
  EXPECT_GE(finish_of(slots), hours / cluster.ranks());
}

TEST(ListSchedule, RefusesWhatIsNoPartOfTheCluster) {
  EXPECT_THROW(list_schedule({{3, 1}}, Cluster{2, 2}), Error);
  EXPECT_THROW(list_schedule({{6, 1}}, Cluster{2, 2}), Error);
  EXPECT_EQ(finish_of(list_schedule({}, Cluster{2, 2})), 0);
}

}  // namespace
}  // namespace anabranch
