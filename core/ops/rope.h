// Rotary position embedding of packed queries and keys.
//
// With pairs (a, b) = (x_i, x_{i + D/2}) of each head, i < D/2, and t = position * base^(-2i/D):
//   (a, b) -> (a cos t - b sin t, a sin t + b cos t)
// and backward turns by -t; a form that is reversed has it the other way round.
//
// Source: Su et al., "RoFormer", 2021, eq. 34, with the pairing of GPT-NeoX (half-split).
#pragma once

#include "core/autograd/tape.h"

namespace anabranch {

struct RopeForm {
  int64_t heads_q, heads_kv, head_dim;
  double base = 10000;
  bool reversed = false;  // turn by -t, as nanochat does
};

// Rotates the queries and keys of `qkv`; values are copied.
//
//   qkv        [N, (Hq + 2 Hkv) D]  packed as queries, keys, values
//   positions  [N]                  int32, not negative
//
// Angles are computed in float64. Keeps positions. Throws Error if the shapes do not fit or D is
// odd.
Var rope(const Var& qkv, const Tensor& positions, const RopeForm& form);

namespace cpu {

// y = x turned forward or back; y may be x.
void rope(Tensor& y, const Tensor& x, const Tensor& positions, const RopeForm& form, bool back);

}  // namespace cpu

namespace cuda {

void rope(Tensor& y, const Tensor& x, const Tensor& positions, const RopeForm& form, bool back);

}  // namespace cuda
}  // namespace anabranch
