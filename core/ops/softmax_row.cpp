#include "core/ops/softmax_row.h"

#include <algorithm>

#include "core/base/build.h"
#include "core/ops/vec_math.h"

namespace anabranch::cpu {
namespace {

template <class A>
[[gnu::always_inline]] inline A softmax(A* p, const A* s, int64_t n) {
  const A largest = *std::max_element(s, s + n);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) p[i] = exp_fast(s[i] - largest);
  A sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += p[i];
  const A scale = A(1) / sum;
  for (int64_t i = 0; i < n; ++i) p[i] *= scale;
  return largest + std::log(sum);
}

}  // namespace

AB_CLONES float softmax_row(float* p, const float* s, int64_t n) { return softmax(p, s, n); }

double softmax_row(double* p, const double* s, int64_t n) { return softmax(p, s, n); }

}  // namespace anabranch::cpu
