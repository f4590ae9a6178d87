// Columns of a matrix as matrices of their own, and back.
//
//   split   y_k[n, c] = x[n, k C + c],   join the other way; each is the other's backward
#pragma once

#include <span>

#include "core/autograd/tape.h"

namespace anabranch {

// x [rows, K * C] as K tensors [rows, C]. Keeps nothing. Throws Error if K does not divide.
std::vector<Var> split_columns(const Var& x, int64_t parts);

// Columns [first, first + count) of x [rows, C] as [rows, count]. Throws Error if x has fewer.
Var take_columns(const Var& x, int64_t first, int64_t count);

inline Var first_columns(const Var& x, int64_t count) { return take_columns(x, 0, count); }

// K tensors of one shape [rows, C] and type as [rows, K * C]. One Var may come several times.
Var join_columns(std::span<const Var> parts);

namespace cpu {

// part [rows, C] <- the columns of the whole [rows, ...] from `first` on.
void copy_columns(Tensor& part, const Tensor& whole, int64_t first);
// The k-th of equal parts of the whole becomes `part`, or 0 if that is empty.
void put_columns(Tensor& whole, const Tensor& part, int64_t k, int64_t parts);
// The columns of the whole from `first` on become `part`, the others 0.
void widen_columns(Tensor& whole, const Tensor& part, int64_t first);

}  // namespace cpu

namespace cuda {

void copy_columns(Tensor& part, const Tensor& whole, int64_t first);
void put_columns(Tensor& whole, const Tensor& part, int64_t k, int64_t parts);
void widen_columns(Tensor& whole, const Tensor& part, int64_t first);

}  // namespace cuda
}  // namespace anabranch
