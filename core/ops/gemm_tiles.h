// Many matrix products side by side, cut into tiles.
//
// A tile's product is one thread's, and how a product is cut does not depend on the threads: so
// neither do results. An element is the same for any number of other rows, too.
#pragma once

#include <memory>
#include <vector>

#include "core/ops/gemm.h"

namespace anabranch::cpu {

// Rows of a tile at most, fewer where they would leave too few tiles to share out; columns; and
// both of a symmetric product.
inline constexpr int64_t kTileM = 1024, kFewerM = 512, kTileN = 2304, kTileSymmetric = 288;

// One of the products; `shape` says whether it is added to c. If c is known to be symmetric, its
// tiles below the diagonal are copies of those above; it must be packed and not added to.
template <class In, class Out>
struct TiledProduct {
  Out* c;
  const In *a, *b;
  GemmShape shape;
  bool symmetric = false;
};

// Runs all products, spread over threads by equal work; none may write what another one touches.
//
//   pool  where tiles into bf16 and padded ones take their buffers from
//
// Instantiated as gemm() of pointers is.
template <class In, class Out>
void gemm_tiles(const std::vector<TiledProduct<In, Out>>& products,
                const std::shared_ptr<Pool>& pool);

}  // namespace anabranch::cpu
