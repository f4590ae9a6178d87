// Copies of a batch, one after the other: the input of P streams.
//
//   y[p, n] = x[n],   dx[n] = sum_p dy[p, n] in the order of p
#pragma once

#include "core/autograd/tape.h"

namespace anabranch {

// P copies.
//
//   x  [rows, C]
//   y  [P * rows, C]  stream-major
//
// Keeps nothing. P = 1 gives x itself. Throws Error if P < 1.
Var repeat_streams(const Var& x, int64_t streams);

namespace cpu {

void repeat_streams(Tensor& y, const Tensor& x);
// dx = the sum of the streams of dy.
void sum_streams(Tensor& dx, const Tensor& dy);

}  // namespace cpu

namespace cuda {

void repeat_streams(Tensor& y, const Tensor& x);
void sum_streams(Tensor& dx, const Tensor& dy);

}  // namespace cuda
}  // namespace anabranch
