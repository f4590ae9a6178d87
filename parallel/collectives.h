// Collectives as differentiable ops. A collective has no one gradient: it depends on whether the
// ranks hold copies or parts. So each is named by what it does to the layout, and the table is the
// definition.
//
//   op             x           y     dy arrives as  forward     backward
//   gather_rows    split rows  copy  partial sums   all-gather  reduce-scatter
//
// Each op is two nodes of the tape. start() begins the transfer and finish() waits for it; what the
// program computes between them overlaps it. Backward mirrors that: finish()'s backward begins the
// transfer of the gradient, the backwards of what lies between run, and start()'s backward waits.
// With a group of one, both are the identity. All ranks of the group call them in the same order.
#pragma once

#include <memory>

#include "core/autograd/tape.h"
#include "parallel/comm/group.h"

namespace anabranch {

// A transfer that was started. Its finish() must follow, once.
struct Pending {
  Var handle;  // carries the gradient back to start()
  Tensor y;    // being filled
  Work work;   // forward
  Group* group = nullptr;
  std::shared_ptr<Work> backward;  // set by finish()'s backward
};

// y <- the rows of all ranks, in rank order.
//
//   x      [n, ...]           this rank's rows; as many on every rank
//   group                     outlives the tape
//
// Keeps nothing. The result of finish() is [size * n, ...].
Pending gather_rows_start(const Var& x, Group& group);
Var gather_rows_finish(const Pending& pending);

}  // namespace anabranch
