// Rows on their way to experts that lie on the ranks of a group, and what the experts make of them
// on its way home.
//
//   step            x                        y                            dy arrives as
//   dispatch        this rank's rows         rows that some expert here   sums over the slots of
//                                            takes, each once             a row
//   dispatch_slots  a value for each slot    those of the slots here      whole
//                   of this rank
//   return_slots    a row for each slot      those of this rank's slots   whole
//                   here
//
// A row travels once to each rank that has an expert for it, with a list of the experts that take
// it, and its gradient the same way back: summed over its slots there, then over ranks here.
//
// The slots of a rank are sorted by expert, so those for one rank lie together. At the experts they
// are sorted by local expert, then by rank, then as the sender had them: as the ranks hold
// consecutive rows, that is the order which one rank would have.
//
// How much comes a rank learns of the others: that is the one wait of a dispatch, also of the host
// for its GPU, where only that knows what was routed. Afterwards the host knows of every part how
// large it is.
//
// With Regions::any_layout the gradient of a row must not be summed but here, in the order of its
// slots: then a row travels once for each of its slots, also where nothing leaves this rank, and
// what comes from a rank stays together.
//
// Every step is a start and a finish, between which other work overlaps the transfer; counts go
// before them, and what lies between overlaps the wait. All ranks of the group call them in the
// same order, those without rows too. Without a group, or with one of one rank, everything is where
// it was, at no cost.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "core/ops/groups.h"
#include "core/tensor/download.h"
#include "parallel/division.h"
#include "parallel/exchange.h"
#include "parallel/regions.h"

namespace anabranch {

// What this rank knows of the slots that travel.
struct SlotRoute {
  Division experts;              // over the ranks of the group
  RowCounts rows, slots;         // that go to and come from each rank
  Groups own;                    // this rank's slots by expert
  Tensor sent;                   // [rows.sent()] int32: this rank's rows by destination
  std::vector<int64_t> held;     // [ranks, local experts] slots of each rank for each expert here
  std::vector<int64_t> rows_of;  // [ranks] rows that each rank has in all
  Tensor arrived;                // [slots.received()] int32: where each slot here lay on arrival
};

// What the ranks tell each other of what will come.
struct PendingCounts {
  SlotPlan plan;
  Group* group = nullptr;  // null: nothing travels
  Division experts;        // over its ranks
  bool apart = false;
  Tensor sent;    // as rows_to_send() says
  Work work;      // of the counts
  Download both;  // int64: what this rank tells the others, and what they tell it
};

struct PendingDispatch {
  std::shared_ptr<SlotRoute> route;  // null: nothing travels
  Var x;
  SlotPlan plan;  // as it was given, but with groups that the host knows and no unused slots if
                  // they travel
  PendingExchange rows;
  Tensor lists;  // [slots received] int32: the sender's row of each slot
  Work work;     // of the lists
  bool apart = false;
};

// What the experts of this rank work on.
struct Dispatched {
  Var rows;       // [plan.rows, C]
  SlotPlan plan;  // sorted by local expert, or by rank, then by local expert, where what came from
                  // a rank stays together; gates are 0, 1, .. if the slots have travelled
  Tensor group_row;  // [plan.rows] int32: each row's number among those of the group, which are in
                     // rank order; empty: 0, 1, ..
  std::shared_ptr<const SlotRoute> route;  // null: nothing has travelled
  Group* group = nullptr;
  Var values;              // of dispatch_slots_finish(), if parts need them
  int64_t first_slot = 0;  // of a part, in the plan of all
};

// Begins to tell the other ranks how much will come.
//
//   plan             the slots of these rows, over all `experts`
//   experts          lie over the model group by Division
//   regions          its groups outlive the tape
PendingCounts dispatch_counts(const SlotPlan& plan, int64_t experts, const Regions& regions);

// Begins to send rows to the experts that take them. Waits for the counts.
//
//   x  [M, C]
PendingDispatch dispatch_start(const Var& x, const PendingCounts& counts);
Dispatched dispatch_finish(const PendingDispatch& pending);

// Calls each(part) for what experts compute with at once, as Regions::for_sources() says: all that
// is here, or what came from each rank; its plan is then sorted by local expert, too.
void for_parts(const Dispatched& at, const Regions& regions,
               const std::function<void(const Dispatched& part)>& each);

// A value for each slot of this rank's plan to one for each slot of the dispatched plan.
//
//   values  [S]  of the plan that was given
PendingExchange dispatch_slots_start(const Var& values, const PendingDispatch& pending);
Var dispatch_slots_finish(const PendingExchange& pending, const Dispatched& at);

// The rows that experts made, for each slot of the dispatched plan, to one for each slot of this
// rank's own plan, in its order.
//
//   z      [S_i, C]  one after the other; what each is of says `order`
//   order  [S]       int32: the slot of each row of z; empty on all ranks: as they are sorted. In
//                    one piece they then leave from where they are, else they are packed
PendingExchange return_slots_start(std::span<const Var> z, const Dispatched& at,
                                   const Tensor& order = {});
Var return_slots_finish(const PendingExchange& pending);

}  // namespace anabranch
