// Self-attention, causal or within bounds, without ever holding a T x T buffer.
//
//   s_ij = q_i . k_j / sqrt(D),   p_ij = softmax_{f_i <= j <= l_i}(s_ij),   y_i = sum_j p_ij v_j
//   dv_j = sum_i p_ij dy_i,   ds_ij = p_ij (dy_i . v_j - dy_i . y_i)
//   dq_i = sum_j ds_ij k_j / sqrt(D),   dk_j = sum_i ds_ij q_i / sqrt(D)
//
// Source: Vaswani et al., "Attention Is All You Need", 2017, eq. 1; in blocks with an online
// softmax as in Dao, "FlashAttention-2", 2023, algorithms 1 and 2.
#pragma once

#include "core/autograd/tape.h"

namespace anabranch {

// Attends from each token to itself and the tokens before it in its sequence, back to a first one;
// or to those after it too, up to a last one.
//
//   qkv        [B*T, 3C]  queries, keys and values side by side; head h has columns h*D .. of each
//   batch                 B, sequences
//   heads                 H, with D = C / H
//   first_key  [B, T]     f, int32: token t sees the keys f_t .. l_t of its sequence. In each row
//                         0 <= f_t <= t, and f does not decrease: a document mask, a window. Keys
//                         that no token of a block sees cost nothing. T is at most 2^24 then.
//                         Empty: 0, all keys before t
//   last_key   [B, T]     l, int32: token t sees the keys up to l_t, with t <= l_t < T, not
//                         decreasing. Empty: t, which is causal
//   y          [B*T, C]
//
// Keeps qkv, first_key, last_key, y and the log-sum-exp of each row's scores [B, H, T]. Sums are in
// Accumulator<T>; the result does not depend on the number of threads. A NaN or infinity in a key
// or value may make NaN of tokens that do not see it: kernels that go by tiles multiply what is
// masked by zeros.
// Throws Error if the shape of qkv does not divide into batch and heads, or a bound is not so; on
// a GPU, with more than 65535 sequences or heads.
Var attention(const Var& qkv, int64_t batch, int64_t heads, const Tensor& first_key = {},
              const Tensor& last_key = {});

// Which keys each token sees, as above; a last is never without a first.
struct KeyBounds {
  Tensor first, last;
};

namespace cpu {

void attention_forward(Tensor& y, Tensor& lse, const Tensor& qkv, const KeyBounds& bounds);
void attention_backward(GradSink& dqkv, const Tensor& dy, const Tensor& qkv,
                        const KeyBounds& bounds, const Tensor& y, const Tensor& lse);

}  // namespace cpu

namespace cuda {

void attention_forward(Tensor& y, Tensor& lse, const Tensor& qkv, const KeyBounds& bounds);
void attention_backward(GradSink& dqkv, const Tensor& dy, const Tensor& qkv,
                        const KeyBounds& bounds, const Tensor& y, const Tensor& lse);

}  // namespace cuda
}  // namespace anabranch
