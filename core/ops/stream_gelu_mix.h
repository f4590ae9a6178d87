// A mixture of N streams after the nonlinearity: experts that share what follows them.
//
//   Y_i = sum_k g_ik gelu(V_ik),   V_ik = K_k s_i + b_k       the tanh form of GELU
//   dg_ik = <dY_i, gelu(V_ik)>,   dV_ik = g_ik gelu'(V_ik) dY_i
//   ds_i = sum_k K_k^T dV_ik,   dK_k = sum_i dV_ik s_i^T,   db_k = sum_i dV_ik
//
// Source: the cMoLLM paper, Eq. 23. Equal to stream_linear followed by GELU only for one-hot gates.
#pragma once

#include "core/ops/stream_linear.h"

namespace anabranch {

// Shapes, types and errors as stream_linear's. Keeps s and g; V is made again in backward, row tile
// by row tile, so that nothing of size M x N x F exists.
Var stream_gelu_mix(const Var& s, const Var& g, Param& w, Param& b,
                    SumType sums = SumType::kRounded, StreamOrder streams = StreamOrder::kRising);

namespace cpu {

void stream_gelu_mix_forward(Tensor& y, const Tensor& s, const Tensor& g, const Tensor& w,
                             const Tensor& b);
void stream_gelu_mix_backward(StreamGradients& to, const Tensor& dy, const Tensor& s,
                              const Tensor& g, const Tensor& w, const Tensor& b);

}  // namespace cpu

namespace cuda {

// Rows of which V, of `columns` = N F sums, is there at once; in backward dV of them too.
int64_t stream_gelu_mix_rows(int64_t rows, int64_t columns, DType sums, bool backward);

// On a GPU V of a tile is of all streams at once, and the order of their sum in ds is the
// product's.
void stream_gelu_mix_forward(Tensor& y, const Tensor& s, const Tensor& g, const Tensor& w,
                             const Tensor& b);
void stream_gelu_mix_backward(cpu::StreamGradients& to, const Tensor& dy, const Tensor& s,
                              const Tensor& g, const Tensor& w, const Tensor& b);

}  // namespace cuda
}  // namespace anabranch
