// Sums and maxima over ranks, in one order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/tensor/dtype.h"
#include "parallel/comm/group.h"

namespace anabranch {

// out[i] <- parts[0][i] + parts[1][i] + ..., added as the tree of core/base/tree_sum.h, or the
// greatest of them.
//
//   out    [count]      of `type`; may be one of the parts
//   parts  each [count] one per rank; float32, bfloat16 (through float32), float64 or int64
//   kind                a maximum for kAllReduceMax, else a sum
void reduce_in_order(DType type, CollectiveKind kind, std::byte* out,
                     std::span<const std::byte* const> parts, int64_t count);

// Where rank `r` of `ranks` has its share of `count` elements: begins are multiples of 32 elements,
// shares differ by at most that.
[[nodiscard]] int64_t share_begin(int64_t count, int ranks, int r);

}  // namespace anabranch
