// Value embeddings: each head's value receives its part of a row of a table, by a gate of its own.
//
//   v_h' = v_h + g_h e_h,   g_h = 2 s(l_h),  s the logistic function
//   dv = dv',   de_h = g_h dv_h',   dl_h = <dv_h', e_h> g_h (1 - g_h / 2)
//
// Source: Zhou et al., "Value Residual Learning", 2024, with the gate of nanochat.
#pragma once

#include "core/autograd/tape.h"

namespace anabranch {

// Adds to the values of `qkv`; queries and keys are copied.
//
//   qkv, y  [N, 3C]  queries, keys and values side by side; head h has columns h*D .. of each
//   e       [N, C]   of qkv's type
//   logits  [N, H]   of the accumulator's type
//
// Keeps e and logits. Throws Error if shapes or types do not fit.
Var value_mix(const Var& qkv, const Var& e, const Var& logits);

namespace cpu {

void value_mix_forward(Tensor& y, const Tensor& qkv, const Tensor& e, const Tensor& logits);
void value_mix_backward(Tensor& de, Tensor& dlogits, const Tensor& dy, const Tensor& e,
                        const Tensor& logits);

}  // namespace cpu

namespace cuda {

void value_mix_forward(Tensor& y, const Tensor& qkv, const Tensor& e, const Tensor& logits);
void value_mix_backward(Tensor& de, Tensor& dlogits, const Tensor& dy, const Tensor& e,
                        const Tensor& logits);

}  // namespace cuda
}  // namespace anabranch
