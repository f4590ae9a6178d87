// Copies of a batch that lie on several ranks: each rank has some copies (the streams of a
// pipeline, say) of the sequences of all ranks, with what is a copy's own; what all copies have
// made of a sequence comes home to the rank that owns it.
//
//   op         x                              y                           dy            backward
//   spread     this rank's rows               rows of all ranks           partial sums  summed
//   come_home  its copies of all ranks' rows  all copies of its own rows  whole         go back
//
// spread is an all-gather, and a reduce-scatter backward; come_home an all-to-all each way.
// Received from other ranks, a token of the group, of C columns and N copies over S ranks:
//
//   spread     (S - 1) / S b C        backward  (S - 1) / S a C
//   come_home  (S - 1) / S b N C / S  backward  the same
//
// with b bytes of the compute type and a of its accumulator. What weighs and merges the copies then
// has all of them of its own rank's rows, as on one rank, and none of it is split. An all-gather of
// the copies would bring every rank the rows of all, S times as much.
#pragma once

#include <vector>

#include "parallel/collectives.h"
#include "parallel/division.h"
#include "parallel/regions.h"

namespace anabranch {

class CopyRegion {
 public:
  CopyRegion() = default;  // one copy, here

  // `copies`, at least as many as regions.model has ranks. Throws Error if there are fewer, or if
  // the run is one of any layout and has more than one rank here: nothing keeps the rows of each
  // rank apart.
  CopyRegion(const Regions& regions, int64_t copies);

  [[nodiscard]] bool alone() const { return group_ == nullptr; }

  // The copies that are here: count() of them, from first() on.
  [[nodiscard]] int64_t first() const { return copies_.begin(rank()); }

  [[nodiscard]] int64_t count() const { return copies_.count(rank()); }

  // Says of a parameter of one copy which is here that other ranks have no such.
  void own(Param& w) const;

  // Leaves this rank its copies' part of the first axis of `w`.
  void split(Param& w) const { split_over(group_, w, 0); }

  // x [n, ...] of all ranks, in rank order, that no gradient goes back to; empty if x is.
  [[nodiscard]] Tensor rows_of_all(const Tensor& x) const;

  // The rows of all ranks, once for each copy here. Collective; alone, x itself.
  //
  //   x       [n, C]     as many rows on every rank
  //   result  [count()]  of [ranks * n, C]
  [[nodiscard]] std::vector<Var> spread(const Var& x) const;

  // All copies of this rank's rows, in the order of the copies. Collective; alone, h itself.
  //
  //   h       [count() * ranks * n, C]  by copy, then by rank
  //   result  [copies * n, C]
  [[nodiscard]] Var come_home(const Var& h) const;

 private:
  [[nodiscard]] int rank() const { return alone() ? 0 : group_->rank(); }

  Group* group_ = nullptr;  // null: alone
  Division copies_;
};

}  // namespace anabranch
