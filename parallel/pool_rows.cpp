#include "parallel/pool_rows.h"

#include "core/ops/pool_counts.h"

namespace anabranch {

PoolCounts::PoolCounts(const Tensor& counts, Group& group)
    : rank_(group.rank()),
      all_(counts.like({group.size(), counts.dim(0), counts.dim(1)}, DType::kI64, "pool_counts")),
      work_(group.all_gather(all_, counts)) {}

Tensor PoolCounts::before() const {
  work_.wait();
  return pool_counts_before(all_, rank_);
}

Tensor PoolCounts::demand() const {
  work_.wait();
  return pool_counts_total(all_);
}

}  // namespace anabranch
