// The matrix product, row-major: c (+)= op(a) op(b) + bias, op the identity or the transpose.
//
// float and bf16 products are oneDNN's, summed in float; float64 is a plain loop. A result does not
// depend on what is cached or on which thread calls, but may depend on the number of threads. On a
// GPU products are cuBLAS's (core/cuda/blas.h), and a bias is added after c is rounded.
#pragma once

#include "core/base/parallel_for.h"
#include "core/cuda/blas.h"
#include "core/tensor/tensor.h"

namespace anabranch {

struct Gemm {
  bool transpose_a = false;
  bool transpose_b = false;
  bool accumulate = false;       // c += instead of c =
  const Tensor* bias = nullptr;  // [n], of the accumulator's type; added to every row
  // Called once for each row, in ranges, when it is final: by many threads at once, each while its
  // rows are in the cache. On a CPU only.
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

namespace cuda {

template <class T>
inline constexpr BlasType kBlasType = BlasType::kF32;
template <>
inline constexpr BlasType kBlasType<Bf16> = BlasType::kBF16;
template <>
inline constexpr BlasType kBlasType<double> = BlasType::kF64;

// The product of pointers into memory of the pool's GPU, on its stream.
template <class In, class Out>
void gemm(Pool& pool, Out* c, const In* a, const In* b, const BlasProduct& p) {
  pool.blas().product(c, kBlasType<Out>, a, b, kBlasType<In>, p);
}

// The same of tensors; then `bias`, if not null, is added to each row of c.
void gemm(Tensor& c, const Tensor& a, const Tensor& b, const BlasProduct& p, const Tensor* bias);

}  // namespace cuda
}  // namespace anabranch
