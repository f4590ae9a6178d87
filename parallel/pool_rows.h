// What ranks whose rows form one pool tell each other of them.
#pragma once

#include <vector>

#include "core/tensor/tensor.h"
#include "parallel/comm/group.h"

namespace anabranch {

// How choices fall on the experts, over a pool whose consecutive rows lie on the ranks of a group.
class PoolCounts {
 public:
  // Begins to tell the other ranks. All ranks of the group do, in the same order.
  //
  //   counts   [k, E]  of this rank's rows, by choice and expert
  //   experts          E
  //   group            more than one rank; outlives this
  PoolCounts(const std::vector<int64_t>& counts, int64_t experts, Group& group);

  // [k, E]: how many come before this rank's, if the pool's first choices come first, each in the
  // order of the rows, then its second ones, and so on. Waits.
  [[nodiscard]] std::vector<int64_t> before() const;

  // [E]: of all choices and ranks. Waits.
  [[nodiscard]] std::vector<int64_t> demand() const;

 private:
  [[nodiscard]] int64_t of(int rank, int64_t choice, int64_t expert) const {
    return all_.data<int64_t>()[(rank * choices_ + choice) * experts_ + expert];
  }

  int64_t choices_, experts_;
  int rank_, ranks_;
  Tensor all_;  // [ranks, k, E]
  Work work_;
};

}  // namespace anabranch
