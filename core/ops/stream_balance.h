// The balance of a mixture of N streams, as a loss: 1 when all carry the same, N when one carries
// all.
//
//   p_k = mean of g_k over a sequence's T rows (or over all rows)
//   L = N sum_k p_k^2, averaged over the sequences
//   dg_ik = dL 2 N p_k / (T * sequences)
//
// Source: the cMoLLM paper, Eq. 20, without its factor alpha.
#pragma once

#include "core/autograd/tape.h"

namespace anabranch {

// The balance of gates.
//
//   g          [M, N]  gates, in an accumulator's type
//   sequences  that M divides into; 1 balances over all rows at once
//   L          [1]     as g; summed in double
//
// Keeps p. Throws Error if M is not a multiple of sequences.
Var stream_balance(const Var& g, int64_t sequences);

namespace cpu {

// Writes L and p [sequences, N] of float64.
void stream_balance_forward(Tensor& loss, Tensor& p, const Tensor& g);
void stream_balance_backward(GradSink& dg, const Tensor& dloss, const Tensor& p);

}  // namespace cpu

namespace cuda {

void stream_balance_forward(Tensor& loss, Tensor& p, const Tensor& g);
void stream_balance_backward(GradSink& dg, const Tensor& dloss, const Tensor& p);

}  // namespace cuda
}  // namespace anabranch
