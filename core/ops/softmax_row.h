// The softmax of one short row, for ops on router logits.
#pragma once

#include <cstdint>

namespace anabranch::cpu {

// p = softmax(s) over n > 0 elements; returns log sum exp s. p may not be s.
float softmax_row(float* p, const float* s, int64_t n);
double softmax_row(double* p, const double* s, int64_t n);

}  // namespace anabranch::cpu
