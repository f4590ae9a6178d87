// Rows on their way to the experts: y[s] = x[source[s]].
//
//   dx[m] = sum over the slots s with source[s] = m of dy[s], in the order of the slots
#pragma once

#include <span>
#include <vector>

#include "core/autograd/tape.h"

namespace anabranch {

// Copies the row of each slot; a row may have any number of slots.
//
//   x       [M, C]
//   source  [S]     int32
//   y       [S, C]
//
// Keeps source. Throws Error if a source is not a row of x, naming it, or shapes do not fit. On a
// GPU no one looks: a slot whose source is not a row is unused, its row is zero.
Var gather_rows(const Var& x, const Tensor& source);

namespace cpu {

// The slots of each row: those of row m are slots[offsets[m]] to slots[offsets[m + 1] - 1],
// ascending.
struct SlotsOfRows {
  std::vector<int32_t> offsets, slots;
};

// Throws Error if a source is not in [0, rows).
SlotsOfRows slots_of_rows(const char* op, const Tensor& source, int64_t rows);

void gather_rows_forward(Tensor& y, const Tensor& x, const Tensor& source);

// y.out[m] (+)= sum over the slots s of row m of weight[s] z[s]; weights of one if null, else of
// the accumulator's type. z [S, C] is in pieces of its rows, in order.
void sum_slots(GradSink& y, std::span<const Tensor> z, const Tensor* weight, const SlotsOfRows& of);

}  // namespace cpu

namespace cuda {

// As on the CPU, in the device's memory: int32 [rows + 1] and [S]. Unused slots are of no row.
struct SlotsOfRows {
  Tensor offsets, slots;
};

SlotsOfRows slots_of_rows(const Tensor& source, int64_t rows);

void gather_rows_forward(Tensor& y, const Tensor& x, const Tensor& source);

// As on the CPU; at most 128 pieces.
void sum_slots(GradSink& y, std::span<const Tensor> z, const Tensor* weight, const SlotsOfRows& of);

}  // namespace cuda
}  // namespace anabranch
