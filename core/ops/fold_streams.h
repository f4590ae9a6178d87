// The streams of each row side by side: [P * rows, C], stream-major, as [rows, P * C].
#pragma once

#include "core/autograd/tape.h"

namespace anabranch {

// y[n, p * C + c] = x[p * rows + n, c]; backward turns back. Keeps nothing.
//
//   x  [P * rows, C]
//   y  [rows, P * C]
//
// Throws Error if x's rows are not a multiple of P.
Var fold_streams(const Var& x, int64_t streams);

// The other way: [rows, P * C] as [P * rows, C].
Var unfold_streams(const Var& x, int64_t streams);

namespace cpu {

// folded [rows, P * C] from plain [P * rows, C]; or, `back`, the other way round.
void fold_streams(Tensor& to, const Tensor& from, int64_t streams, bool back);

}  // namespace cpu

namespace cuda {

void fold_streams(Tensor& to, const Tensor& from, int64_t streams, bool back);

}  // namespace cuda
}  // namespace anabranch
