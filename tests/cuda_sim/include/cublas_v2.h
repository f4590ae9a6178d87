// The part of cuBLAS that this project uses; names and numbers are its own.
#pragma once

#include <cuda_runtime.h>

// NOLINTBEGIN: these names are cuBLAS's.
enum cublasStatus_t {
  CUBLAS_STATUS_SUCCESS = 0,
  CUBLAS_STATUS_NOT_INITIALIZED = 1,
  CUBLAS_STATUS_INVALID_VALUE = 7,
  CUBLAS_STATUS_EXECUTION_FAILED = 13,
  CUBLAS_STATUS_NOT_SUPPORTED = 15
};

enum cublasOperation_t { CUBLAS_OP_N = 0, CUBLAS_OP_T = 1 };

enum cublasGemmAlgo_t { CUBLAS_GEMM_DEFAULT = -1 };

enum cublasMath_t {
  CUBLAS_DEFAULT_MATH = 0,
  CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION = 16
};

enum cublasComputeType_t { CUBLAS_COMPUTE_32F = 68, CUBLAS_COMPUTE_64F = 70 };

enum cudaDataType_t { CUDA_R_32F = 0, CUDA_R_64F = 1, CUDA_R_16BF = 14 };

using cublasHandle_t = struct cublasContext*;

const char* cublasGetStatusName(cublasStatus_t status);
cublasStatus_t cublasCreate(cublasHandle_t* handle);
cublasStatus_t cublasDestroy(cublasHandle_t handle);
cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream);
cublasStatus_t cublasSetWorkspace(cublasHandle_t handle, void* workspace, size_t bytes);
cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode);

// Matrices go by columns. A handle without a workspace, for which cuBLAS would take memory of its
// own, is refused here.
cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b,
                            int m, int n, int k, const void* alpha, const void* a,
                            cudaDataType_t a_type, int lda, const void* b, cudaDataType_t b_type,
                            int ldb, const void* beta, void* c, cudaDataType_t c_type, int ldc,
                            cublasComputeType_t sums, cublasGemmAlgo_t algorithm);
cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t op_a,
                                          cublasOperation_t op_b, int m, int n, int k,
                                          const void* alpha, const void* a, cudaDataType_t a_type,
                                          int lda, long long int stride_a, const void* b,
                                          cudaDataType_t b_type, int ldb, long long int stride_b,
                                          const void* beta, void* c, cudaDataType_t c_type, int ldc,
                                          long long int stride_c, int batch,
                                          cublasComputeType_t sums, cublasGemmAlgo_t algorithm);
// NOLINTEND
