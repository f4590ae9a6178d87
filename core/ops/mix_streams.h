// The weighted mean of P streams that lie side by side, smoothed towards the plain one.
//
//   y = sum_p q_p H_p,   q_p = (1 - eps) a_p + eps / P
//   dH_p = q_p dy,   da_p = (1 - eps) <dy, H_p>
//
// Sources: ParScale (arXiv 2505.10475); the cMoLLM paper, Eq. 16 and 17.
#pragma once

#include "core/autograd/tape.h"

namespace anabranch {

// Mixes each row.
//
//   h  [rows, P * C]  streams side by side, as fold_streams makes them
//   a  [rows, P]      weights, in h's accumulator type
//   y  [rows, C]
//
// Keeps h and a. Throws Error if shapes or types do not fit.
Var mix_streams(const Var& h, const Var& a, double smoothing);

// The plain mean of P streams.
Var mean_streams(const Var& h, int64_t streams);

namespace cpu {

// a: empty for the plain mean.
void mix_streams_forward(Tensor& y, const Tensor& h, const Tensor& a, double smoothing);
// da: empty if unwanted.
void mix_streams_backward(Tensor& dh, Tensor& da, const Tensor& dy, const Tensor& h,
                          const Tensor& a, double smoothing);

}  // namespace cpu

namespace cuda {

void mix_streams_forward(Tensor& y, const Tensor& h, const Tensor& a, double smoothing);
void mix_streams_backward(Tensor& dh, Tensor& da, const Tensor& dy, const Tensor& h,
                          const Tensor& a, double smoothing);

}  // namespace cuda
}  // namespace anabranch
