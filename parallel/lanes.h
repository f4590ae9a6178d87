// Sums over the samples of a step that are the same whatever ranks have them.
//
// Sample i of a step adds to lane i mod 8. Up to 8 ranks, of a number that is a power of two and of
// one sample a micro-batch, have whole lanes: rank r of R the lanes i with i mod R = r. So what a
// lane is made of, and in which order, is the same for all of them; reduced over ranks each lane
// meets zeros alone, which move it and round nothing; and lanes are added in one tree.
#pragma once

#include "core/tensor/tensor.h"
#include "parallel/comm/group.h"

namespace anabranch {

inline constexpr int kLanes = 8;

// The lane of this rank's micro-batch `number` of a step.
//
//   all  of the ranks, a power of two and at most kLanes
[[nodiscard]] int lane_of(int64_t number, const Group& all);

// The first of the lanes [lanes, ...] <- their sum. The others are of no use afterwards.
void add_lanes(const Tensor& lanes);

// The same over the ranks of the group, each of which has filled its own lanes, the others with
// zeros; of one lane, whatever it is made of. Waits.
void sum_lanes(const Tensor& lanes, Group& group);

}  // namespace anabranch
