// AltUp's correction of predicted blocks by the one that was computed.
//
//   x_i = xh_i + g_i (xt - xh_a),   a the active block
//   dxh_i = dx_i, and dxh_a -= sum_i g_i dx_i;   dxt = sum_i g_i dx_i;   dg_i = <dx_i, xt - xh_a>
//
// Source: Baykal et al., "Alternating Updates for Efficient Transformers", 2023, algorithm 1.
#pragma once

#include <span>

#include "core/autograd/tape.h"

namespace anabranch {

// Corrects K blocks.
//
//   predicted  K of one shape and type: xh
//   computed   xt, of the same
//   active     a, in 0..K-1
//   g          [K], in their accumulator type
//
// Keeps xt - xh_a. Throws Error if they do not fit.
std::vector<Var> altup_correct(std::span<const Var> predicted, const Var& computed, int64_t active,
                               Param& g);

// Writes the corrected blocks and `difference`, xt - xh_a.
struct AltupForward {
  std::vector<Tensor> corrected;
  Tensor difference;
  std::vector<Tensor> predicted;
  Tensor computed, g;
  int64_t active;
};

// Writes dg, dxt and dxa, the gradient of xh_a.
struct AltupBackward {
  GradSink dg;
  Tensor dxt, dxa;
  std::span<const Tensor> dys;  // empty ones: of blocks that nothing used
  Tensor difference, g;
  int64_t active;
};

namespace cpu {

void altup_correct_forward(AltupForward& op);
void altup_correct_backward(AltupBackward& op);

}  // namespace cpu

namespace cuda {

// Both throw Error for more than 64 blocks.
void altup_correct_forward(AltupForward& op);
void altup_correct_backward(AltupBackward& op);

}  // namespace cuda
}  // namespace anabranch
