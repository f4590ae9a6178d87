// Columns of a matrix as matrices of their own, and back.
//
//   split   y_k[n, c] = x[n, k C + c],   join the other way; each is the other's backward
#pragma once

#include <span>

#include "core/autograd/tape.h"

namespace anabranch {

// x [rows, K * C] as K tensors [rows, C]. Keeps nothing. Throws Error if K does not divide.
std::vector<Var> split_columns(const Var& x, int64_t parts);

// The first `count` columns of x [rows, C] as [rows, count]. Throws Error if x has fewer.
Var first_columns(const Var& x, int64_t count);

// K tensors of one shape [rows, C] and type as [rows, K * C]. One Var may come several times.
Var join_columns(std::span<const Var> parts);

namespace cpu {

// Copies part `k` between the whole [rows, K * C] and `part` [rows, C]; an empty part is zero.
void copy_columns(Tensor& part, const Tensor& whole, int64_t k);
void put_columns(Tensor& whole, const Tensor& part, int64_t k, int64_t parts);
// The first columns of the whole become `part`, the others 0.
void widen_columns(Tensor& whole, const Tensor& part);

}  // namespace cpu
}  // namespace anabranch
