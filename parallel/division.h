// How equal parts (streams, experts, columns) lie over the ranks of a group: consecutive ones on
// each rank, in rank order, the first ranks one more where they do not come out even.
#pragma once

#include <algorithm>
#include <cstdint>

namespace anabranch {

struct Division {
  int64_t parts = 1;
  int ranks = 1;

  [[nodiscard]] int64_t begin(int rank) const {
    const int64_t each = parts / ranks, larger = parts % ranks;
    return rank * each + std::min<int64_t>(rank, larger);
  }

  [[nodiscard]] int64_t end(int rank) const { return begin(rank + 1); }

  [[nodiscard]] int64_t count(int rank) const { return end(rank) - begin(rank); }
};

}  // namespace anabranch
