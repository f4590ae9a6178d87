// Rows that change ranks, as differentiable ops.
//
//   op             x                    y                dy arrives as  forward     backward
//   exchange_rows  rows by destination  rows by source   whole          all-to-all  all-to-all back
//
// exchange_rows is two nodes of the tape, as the ops of collectives.h are: what lies between them
// overlaps the transfer, forward and backward. With a group of one it is the identity.
#pragma once

#include <memory>
#include <vector>

#include "core/autograd/tape.h"
#include "parallel/comm/group.h"

namespace anabranch {

// How many rows this rank sends to each rank, and gets from each.
struct RowCounts {
  std::vector<int64_t> out, in;  // [size of the group]

  [[nodiscard]] int64_t sent() const;
  [[nodiscard]] int64_t received() const;
};

// Which rows go where, and come from where.
struct RowMoves {
  std::vector<RowSegment> out, in;

  [[nodiscard]] int64_t received() const;
};

// An exchange that was started. Its finish() must follow, once.
struct PendingExchange {
  Var handle;  // carries the gradient back to start()
  Tensor y;    // being filled
  Work work;   // forward
  RowMoves moves;
  Group* group = nullptr;
  std::shared_ptr<Work> backward;  // set by finish()'s backward
};

// y <- the rows that each rank has for this one, in rank order.
//
//   x       [counts.sent(), ...]  rows by the rank that they go to; may be none
//   counts                        what comes from a rank is what it sends
//   group                         outlives the tape; null: alone
//
// Keeps nothing. The result of finish() is [counts.received(), ...].
PendingExchange exchange_rows_start(const Var& x, const RowCounts& counts, Group* group);
// The same of rows that lie anywhere in x, and go anywhere in y.
//
//   moves  every row of x and of y once; what each rank sends another, in order, is what that gets
PendingExchange exchange_rows_start(const Var& x, RowMoves moves, Group* group);
Var exchange_rows_finish(const PendingExchange& pending);

}  // namespace anabranch
