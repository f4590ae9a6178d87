#include "core/cuda/blas.h"

#include <limits>

#include <cublas_v2.h>

#include "core/base/error.h"

namespace anabranch::cuda {
namespace {

void check_blas(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw Error(Fault::kInternal, join("[cuda] ", call, " failed: ", cublasGetStatusName(status)));
}

cudaDataType_t data_type(BlasType type) {
  switch (type) {
    case BlasType::kBF16:
      return CUDA_R_16BF;
    case BlasType::kF64:
      return CUDA_R_64F;
    default:
      return CUDA_R_32F;
  }
}

int as_int(int64_t extent) {
  AB_CHECK(extent <= std::numeric_limits<int>::max(), "[gemm] an extent of ", extent,
           " is more than cuBLAS takes");
  return static_cast<int>(extent);
}

cublasOperation_t operation(bool transposed) { return transposed ? CUBLAS_OP_T : CUBLAS_OP_N; }

// What the library gets: its matrices go by columns, so ours are transposed ones and change places.
struct Call {
  int m, n, k, lda, ldb, ldc, batch;
  cublasOperation_t op_a, op_b;

  explicit Call(const BlasProduct& p)
      : m(as_int(p.n)),
        n(as_int(p.m)),
        k(as_int(p.k)),
        lda(as_int(p.ldb != 0 ? p.ldb : (p.transpose_b ? p.k : p.n))),
        ldb(as_int(p.lda != 0 ? p.lda : (p.transpose_a ? p.m : p.k))),
        ldc(as_int(p.ldc != 0 ? p.ldc : p.n)),
        batch(as_int(p.batch)),
        op_a(operation(p.transpose_b)),
        op_b(operation(p.transpose_a)) {
    for (int* leading : {&lda, &ldb, &ldc}) *leading = *leading > 1 ? *leading : 1;
  }
};

}  // namespace

Blas::Blas(CUstream_st* stream, void* workspace) {
  check_blas(cublasCreate(&handle_), "cublasCreate");
  check_blas(cublasSetStream(handle_, stream), "cublasSetStream");  // takes the workspace away
  check_blas(cublasSetWorkspace(handle_, workspace, kWorkspaceBytes), "cublasSetWorkspace");
  check_blas(cublasSetMathMode(handle_, CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION),
             "cublasSetMathMode");
}

Blas::~Blas() { cublasDestroy(handle_); }

void Blas::product(void* c, BlasType out, const void* a, const void* b, BlasType in,
                   const BlasProduct& p) {
  if (p.m == 0 || p.n == 0 || p.batch == 0) return;
  const Call call(p);
  const bool wide = in == BlasType::kF64;
  const auto alpha32 = static_cast<float>(p.alpha), beta32 = static_cast<float>(p.beta);
  const void* alpha = wide ? static_cast<const void*>(&p.alpha) : &alpha32;
  const void* beta = wide ? static_cast<const void*>(&p.beta) : &beta32;
  const cublasComputeType_t sums = wide ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F;
  const cudaDataType_t from = data_type(in), to = data_type(out);
  if (call.batch == 1) {
    check_blas(
        cublasGemmEx(handle_, call.op_a, call.op_b, call.m, call.n, call.k, alpha, b, from,
                     call.lda, a, from, call.ldb, beta, c, to, call.ldc, sums, CUBLAS_GEMM_DEFAULT),
        "cublasGemmEx");
  } else {
    check_blas(cublasGemmStridedBatchedEx(handle_, call.op_a, call.op_b, call.m, call.n, call.k,
                                          alpha, b, from, call.lda, p.stride_b, a, from, call.ldb,
                                          p.stride_a, beta, c, to, call.ldc, p.stride_c, call.batch,
                                          sums, CUBLAS_GEMM_DEFAULT),
               "cublasGemmStridedBatchedEx");
  }
}

}  // namespace anabranch::cuda
