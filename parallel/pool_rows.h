// What ranks whose rows form one pool tell each other of them.
#pragma once

#include "core/tensor/tensor.h"
#include "parallel/comm/group.h"

namespace anabranch {

// How choices fall on the experts, over a pool whose consecutive rows lie on the ranks of a group.
// What is waited for below is waited for as Work::wait() says: on a GPU the host does not.
class PoolCounts {
 public:
  // Begins to tell the other ranks. All ranks of the group do, in the same order.
  //
  //   counts  [k, E] int64  of this rank's rows, by choice and expert
  //   group                 outlives this
  PoolCounts(const Tensor& counts, Group& group);

  // [k, E] int64, beside the counts: how many come before this rank's, if the pool's first choices
  // come first, each in the order of the rows, then its second ones, and so on. Waits.
  [[nodiscard]] Tensor before() const;

  // [1, E] int64, likewise: of all choices and ranks. Waits.
  [[nodiscard]] Tensor demand() const;

 private:
  int rank_;
  Tensor all_;  // [ranks, k, E]
  Work work_;
};

}  // namespace anabranch
