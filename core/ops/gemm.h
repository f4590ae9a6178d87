// The matrix product, row-major: c (+)= op(a) op(b) + bias, op the identity or the transpose.
//
// float and bf16 products are oneDNN's, summed in float; float64 is a plain loop. A result does not
// depend on what is cached or on which thread calls, but may depend on the number of threads.
#pragma once

#include "core/base/parallel_for.h"
#include "core/tensor/tensor.h"

namespace anabranch {

struct Gemm {
  bool transpose_a = false;
  bool transpose_b = false;
  bool accumulate = false;       // c += instead of c =
  const Tensor* bias = nullptr;  // [n], of the accumulator's type; added to every row
  // Called once for each row, in ranges, when it is final: by many threads at once, each while its
  // rows are in the cache.
  const RangeBody* after = nullptr;
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

// Rows of a product into bf16 that are summed in a float buffer before they are rounded. Half as
// many cost 3% of the product's speed.
inline constexpr int64_t kGemmRows = 2048;

struct GemmShape {
  int64_t m, n, k;
  bool transpose_a = false, transpose_b = false, accumulate = false;
  int64_t lda = 0, ldb = 0, ldc = 0;  // elements from row to row; 0 if packed
};

template <class A>
struct GemmEnd {
  const A* bias = nullptr;           // [n]
  const RangeBody* after = nullptr;  // as in Gemm
  std::shared_ptr<Pool> pool;        // where a product into bf16 takes its buffer from
};

// Instantiated for <float, float>, <double, double>, <Bf16, float> and <Bf16, Bf16>.
template <class In, class Out>
void gemm(Out* c, const In* a, const In* b, GemmShape s, const GemmEnd<Accumulator<In>>& end = {});

}  // namespace cpu
}  // namespace anabranch
