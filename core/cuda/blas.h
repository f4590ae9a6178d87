// Matrix products by cuBLAS on one stream.
//
// Sums are float (double for float64) and in full: no TF32, no partial sums rounded to bfloat16.
// One handle, one stream and a workspace of its own: so the same product gives the same bits in
// every run, and nothing is allocated by one.
#pragma once

#include <cstddef>
#include <cstdint>

struct CUstream_st;
struct cublasContext;  // what a cublasHandle_t points to

namespace anabranch::cuda {

enum class BlasType : uint8_t { kF32, kBF16, kF64 };

// c <- alpha op(a) op(b) + beta c, row-major: op(a) [m, k], op(b) [k, n], c [m, n]; `batch` of
// them, the first elements of which are `stride` elements apart. With beta 0, c is not read.
struct BlasProduct {
  int64_t m, n, k;
  bool transpose_a = false, transpose_b = false;
  double alpha = 1, beta = 0;
  int64_t lda = 0, ldb = 0, ldc = 0;  // elements from row to row; 0 if packed
  int64_t batch = 1, stride_a = 0, stride_b = 0, stride_c = 0;
};

class Blas {
 public:
  // What cuBLAS asks for on sm_90; more than it asks for before.
  static constexpr size_t kWorkspaceBytes = size_t{32} << 20U;

  // `workspace` is on the stream's GPU, the calling thread's current one, and outlives this.
  Blas(CUstream_st* stream, void* workspace);
  ~Blas();
  Blas(const Blas&) = delete;
  Blas& operator=(const Blas&) = delete;

  // a and b are of one type; c of theirs or, beside bfloat16, float32. Throws Error if cuBLAS
  // refuses.
  void product(void* c, BlasType out, const void* a, const void* b, BlasType in,
               const BlasProduct& p);

 private:
  cublasContext* handle_ = nullptr;
};

}  // namespace anabranch::cuda
