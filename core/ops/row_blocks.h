// Sums over rows that do not depend on the number of threads: each block of rows has a partial sum
// of its own, and these are added in the order of the blocks.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/autograd/tape.h"
#include "core/base/parallel_for.h"

namespace anabranch {

// How `rows` are cut: at most 64 blocks, of at least 16 rows.
struct RowBlocks {
  int64_t rows, per_block, count;

  explicit RowBlocks(int64_t n)
      : rows(n),
        per_block(std::max<int64_t>(16, (n + 63) / 64)),
        count((n + per_block - 1) / per_block) {}

  [[nodiscard]] int64_t begin(int64_t block) const { return block * per_block; }

  [[nodiscard]] int64_t end(int64_t block) const {
    return std::min(begin(block) + per_block, rows);
  }
};

// to[c] (+)= sum over blocks of partials[block * stride + c], for each of to's elements.
template <class A>
void add_blocks(GradSink& to, const A* partials, int64_t blocks, int64_t stride) {
  A* out = to.out.data<A>();
  const bool accumulate = to.accumulate;
  constexpr int64_t kGrain = 512;
  parallel_for(to.out.count(), kGrain, [=](int64_t begin, int64_t end) {
    if (!accumulate) std::fill(out + begin, out + end, A(0));
    for (int64_t block = 0; block < blocks; ++block) {
      const A* from = partials + block * stride;
      for (int64_t c = begin; c < end; ++c) out[c] += from[c];
    }
  });
}

}  // namespace anabranch
