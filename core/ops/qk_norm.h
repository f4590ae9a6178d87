// Root-mean-square normalisation, without a gain, of every head's query and key.
//
//   r = 1 / sqrt(mean_d(x^2) + eps),   y = x r           per row and head
//   dx = r (dy - y mean_d(dy y))
//
// Source: Henry et al., "Query-Key Normalization for Transformers", 2020, with the RMS norm.
#pragma once

#include "core/autograd/tape.h"

namespace anabranch {

// Normalises the queries and keys of `qkv`; values are copied.
//
//   qkv, y  [N, 3C]  queries, keys and values side by side; head h has columns h*D .. of each
//   heads            H, with D = C / H
//   eps              added to the mean square
//
// Keeps y and r. Throws Error if the shape of qkv does not divide into heads.
Var qk_norm(const Var& qkv, int64_t heads, double eps = 1e-5);

namespace cpu {

// Writes y and r [N, 2H].
void qk_norm_forward(Tensor& y, Tensor& r, const Tensor& qkv, double eps);
// dx may be dy itself.
void qk_norm_backward(Tensor& dx, const Tensor& dy, const Tensor& y, const Tensor& r);

}  // namespace cpu

namespace cuda {

void qk_norm_forward(Tensor& y, Tensor& r, const Tensor& qkv, double eps);
void qk_norm_backward(Tensor& dx, const Tensor& dy, const Tensor& y, const Tensor& r);

}  // namespace cuda
}  // namespace anabranch
