// Rows in the order of small keys, stably, on a GPU: for sums over the rows of one key.
#pragma once

#include "core/tensor/tensor.h"

namespace anabranch::cuda {

struct RowOrder {
  Tensor keys;  // [N] int32, ascending
  Tensor rows;  // [N] int32: the row of each, ascending where keys are equal
};

// The order of `keys` [N], int32 in a GPU's memory, from 0 to bound - 1; a key outside counts as
// the nearest inside. A radix sort of 8 bits at a time: no atomics, two launches for each digit.
RowOrder row_order(const Tensor& keys, int64_t bound);

}  // namespace anabranch::cuda
