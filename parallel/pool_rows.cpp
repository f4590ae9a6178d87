#include "parallel/pool_rows.h"

#include "core/base/error.h"

namespace anabranch {

PoolCounts::PoolCounts(const std::vector<int64_t>& counts, int64_t experts, Group& group)
    : choices_(std::ssize(counts) / experts),
      experts_(experts),
      rank_(group.rank()),
      ranks_(group.size()),
      all_({ranks_ * std::ssize(counts)}, DType::kI64) {
  AB_CHECK(choices_ * experts == std::ssize(counts), counts.size(), " counts of ", experts,
           " experts");
  work_ = group.all_gather(all_, Tensor::of<int64_t>({std::ssize(counts)}, counts));
}

std::vector<int64_t> PoolCounts::before() const {
  work_.wait();
  std::vector<int64_t> all, served(static_cast<size_t>(experts_), 0);
  for (int64_t c = 0; c < choices_; ++c) {
    std::vector<int64_t> mine = served;
    for (int r = 0; r < ranks_; ++r) {
      for (int64_t e = 0; e < experts_; ++e) {
        if (r < rank_) mine[static_cast<size_t>(e)] += of(r, c, e);
        served[static_cast<size_t>(e)] += of(r, c, e);
      }
    }
    all.insert(all.end(), mine.begin(), mine.end());
  }
  return all;
}

std::vector<int64_t> PoolCounts::demand() const {
  work_.wait();
  std::vector<int64_t> all(static_cast<size_t>(experts_), 0);
  for (int r = 0; r < ranks_; ++r) {
    for (int64_t c = 0; c < choices_; ++c) {
      for (int64_t e = 0; e < experts_; ++e) all[static_cast<size_t>(e)] += of(r, c, e);
    }
  }
  return all;
}

}  // namespace anabranch
