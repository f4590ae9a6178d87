// Rows in another order.
//
//   permute_rows   y[i] = row order[i] of the pieces, one after the other
//   inverse_order  inverse[order[i]] = i
#pragma once

#include <span>

#include "core/autograd/tape.h"

namespace anabranch {

// Every row is taken once.
//
//   pieces  [n_i, ...]  of one type and size of rows; one at least
//   order   [sum n_i]   int32
//
// Keeps order. Throws Error if `order` has another number of rows, or names one that there is not
// or one twice. On a GPU no one looks at what it names.
Var permute_rows(std::span<const Var> pieces, const Tensor& order);

// The order that undoes `order`; or, with `places`, the one that undoes places[order[i]].
//
//   order   [n]  int32, each of 0 .. n - 1 once
//   places  [n]  the same, or empty: 0, 1, ..
//
// Throws Error as permute_rows() does.
Tensor inverse_order(const Tensor& order, const Tensor& places = {});

namespace cpu {

// Throws Error, naming `op`, unless `order` is one of `rows` rows.
void check_order(const char* op, const Tensor& order, int64_t rows);

void permute_rows_forward(Tensor& y, std::span<const Tensor> pieces, const Tensor& order);
void permute_rows_backward(std::span<Tensor> dpieces, const Tensor& dy, const Tensor& order);
void inverse_order(Tensor& inverse, const Tensor& order, const Tensor& places);

}  // namespace cpu

namespace cuda {

// As on the CPU; at most 128 pieces.
void permute_rows_forward(Tensor& y, std::span<const Tensor> pieces, const Tensor& order);
void permute_rows_backward(std::span<Tensor> dpieces, const Tensor& dy, const Tensor& order);
void inverse_order(Tensor& inverse, const Tensor& order, const Tensor& places);

}  // namespace cuda
}  // namespace anabranch
