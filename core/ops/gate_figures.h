// What gates say of their streams, for reports: nothing learns from it.
#pragma once

#include "core/tensor/tensor.h"

namespace anabranch {

// to <- over the rows of gates: the sum of each stream's gate, how often it is the largest (the
// first of equal ones), and the sum of the entropies -sum_k g_k ln g_k in nats.
//
//   to     [2N + 1] float64, beside gates; or [N] for the sums alone, which cost no logarithms
//   gates  [M, N]   of any floating type
void gate_figures(Tensor& to, const Tensor& gates);

namespace cpu {

void gate_figures(Tensor& to, const Tensor& gates);

}  // namespace cpu

namespace cuda {

// Adds up by blocks of rows, in their order.
void gate_figures(Tensor& to, const Tensor& gates);

}  // namespace cuda
}  // namespace anabranch
