// Collectives as differentiable ops. A collective has no one gradient: it depends on whether the
// ranks hold copies or parts. So each is named by what it does to the layout, and the table is the
// definition.
//
//   op             x             y           dy arrives as  forward         backward
//   share_rows     split rows    copy        partial sums   all-gather      reduce-scatter
//   sum_rows       partial sums  split rows  split rows     reduce-scatter  all-gather
//
// On the wire values have the type that they have: rows that of activations, partial sums that of
// their sums if they were made wide, and are rounded once, when they have been summed.
//
// Each op is two nodes of the tape. start() begins the transfer and finish() waits for it; what the
// program computes between them overlaps it. Backward mirrors that: finish()'s backward begins the
// transfer of the gradient, the backwards of what lies between run, and start()'s backward waits.
// With a group of one, share_rows is the identity. All ranks of the group call them in the same
// order.
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
  bool wide_grad = false;          // of share_rows
  Tensor rounded = {};             // of sum_rows: what y is rounded to; empty: stays as it is
};

// The type in which the gradient of a copy is made: a part of a sum.
enum class PartialGrad : uint8_t {
  kRounded,  // x's
  kWide      // the accumulator's: the ops that read the copy must expect that
};

// y <- the rows of all ranks, in rank order.
//
//   x      [n, ...]           this rank's rows; as many on every rank
//   group                     outlives the tape
//   grad                      x's own gradient has x's type either way
//
// Keeps nothing. The result of finish() is [size * n, ...].
Pending share_rows_start(const Var& x, Group& group, PartialGrad grad = PartialGrad::kRounded);
Var share_rows_finish(const Pending& pending);

// The rows of all ranks, in rank order, of x that no gradient goes back to. Waits.
//
//   x  [n, ...]  as many on every rank
[[nodiscard]] Tensor rows_of_all(const Tensor& x, Group& group);

// y <- this rank's rows of the sum over ranks of x.
//
//   x      [size * n, ...]  partial sums for the rows of all ranks, in rank order
//   group                   outlives the tape
//   y      [n, ...]         filled; of x's type, or the type to which sums are rounded
//
// Keeps nothing. The result of finish() is y. The gradient of x has the type of that of y, which
// the producer of x must expect.
Pending sum_rows_start(const Var& x, Group& group, const Tensor& y);
Var sum_rows_finish(const Pending& pending);

}  // namespace anabranch
