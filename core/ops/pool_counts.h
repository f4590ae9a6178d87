// Where the choices of one part of a pool stand among those of all its parts, whose rows follow
// each other: all first choices come first, part by part, then all second ones, and so on.
//
//   before[c, e] = sum_{c' < c} sum_r all[r, c', e] + sum_{r < part} all[r, c, e]
//   total[e]     = sum_c sum_r all[r, c, e]
#pragma once

#include <cstdint>

#include "core/tensor/tensor.h"

namespace anabranch {

// [k, E] int64: how many choices of each expert come before those of `part`.
//
//   all   [parts, k, E] int64  how many choices of each part fell on each expert
//   part  in [0, parts)
//
// Throws Error if these do not fit.
[[nodiscard]] Tensor pool_counts_before(const Tensor& all, int64_t part);

// [1, E] int64: how many fell on each.
[[nodiscard]] Tensor pool_counts_total(const Tensor& all);

namespace cpu {

void pool_counts_before(Tensor& before, const Tensor& all, int64_t part);
void pool_counts_total(Tensor& total, const Tensor& all);

}  // namespace cpu

namespace cuda {

void pool_counts_before(Tensor& before, const Tensor& all, int64_t part);
void pool_counts_total(Tensor& total, const Tensor& all);

}  // namespace cuda
}  // namespace anabranch
