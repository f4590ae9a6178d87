// Learned keys and values before the tokens of each sequence, as rows that attention sees and
// nothing asks: their queries are zero, and what they attend to is dropped.
//
//   with_prefix     per sequence: n rows (0 | K_p | V_p), then its own rows of qkv
//   without_prefix  takes those n rows away again
//
// Sequences are stream-major: the first rows' share of them has prefix 0, and so on. No position
// encoding is applied to a prefix. Source: ParScale (arXiv 2505.10475), section 3.
#pragma once

#include "core/autograd/tape.h"

namespace anabranch {

// Puts prefixes before sequences.
//
//   qkv        [S * T, 3C]
//   keys       [P, n, C]   trained, as qkv; S is a multiple of P
//   values     [P, n, C]   likewise
//   sequences  S
//   result     [S * (n + T), 3C]
//
// Keeps nothing but shapes. Throws Error if they do not fit.
Var with_prefix(const Var& qkv, Param& keys, Param& values, int64_t sequences);

// The prefixes alone, as a cache takes them in before the first token: [S * n, 3C]. No tape.
Tensor prefix_rows(const Tensor& keys, const Tensor& values, int64_t sequences);

// [S * (n + T), C] to [S * T, C].
Var without_prefix(const Var& y, int64_t sequences, int64_t prefix);

namespace cpu {

void with_prefix(Tensor& to, const Tensor& qkv, const Tensor& keys, const Tensor& values,
                 int64_t sequences);
// The gradients of keys and values from that of the result.
void prefix_gradients(GradSink& dkeys, GradSink& dvalues, const Tensor& dy, int64_t sequences);
// Copies each sequence's own rows between a tensor with prefixes and one without; prefixes of `to`
// become 0.
void copy_own_rows(Tensor& to, const Tensor& from, int64_t sequences, int64_t prefix);

}  // namespace cpu

namespace cuda {

void with_prefix(Tensor& to, const Tensor& qkv, const Tensor& keys, const Tensor& values,
                 int64_t sequences);
void prefix_gradients(GradSink& dkeys, GradSink& dvalues, const Tensor& dy, int64_t sequences);
void copy_own_rows(Tensor& to, const Tensor& from, int64_t sequences, int64_t prefix);

}  // namespace cuda
}  // namespace anabranch
