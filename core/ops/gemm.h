// The matrix product, row-major: c (+)= op(a) op(b) + bias, op the identity or the transpose.
//
// float and bf16 products are oneDNN's, summed in float; float64 is a plain loop. A result does not
// depend on what is cached or on which thread calls, but may depend on the number of threads.
#pragma once

#include "core/tensor/tensor.h"

namespace anabranch {

struct Gemm {
  bool transpose_a = false;
  bool transpose_b = false;
  bool accumulate = false;       // c += instead of c =
  const Tensor* bias = nullptr;  // [n], of the accumulator's type; added to every row
};

// The product of tensors seen as matrices whose rows are the last axis.
//
//   a  [m, k], or [k, m] if transposed   float32, bfloat16 or float64
//   b  [k, n], or [n, k] if transposed   as a
//   c  [m, n]                            as a, or float32 beside bfloat16
//
// Throws Error if shapes or types do not fit.
void gemm(Tensor& c, const Tensor& a, const Tensor& b, const Gemm& how = {});

namespace cpu {

// Rows of a product into bf16 that are summed in a float buffer before they are rounded; also a
// good piece for work that follows a product while its result is in the cache.
inline constexpr int64_t kGemmRows = 512;

struct GemmShape {
  int64_t m, n, k;
  bool transpose_a = false, transpose_b = false, accumulate = false;
  int64_t lda = 0, ldb = 0, ldc = 0;  // elements from row to row; 0 if packed
};

// Instantiated for <float, float>, <double, double>, <Bf16, float> and <Bf16, Bf16>.
//
//   bias  [n] or null
//   pool  where the last of them takes its buffer from
template <class In, class Out>
void gemm(Out* c, const In* a, const In* b, GemmShape s, const Accumulator<In>* bias = nullptr,
          const std::shared_ptr<Pool>& pool = nullptr);

}  // namespace cpu
}  // namespace anabranch
