// cuBLAS over the machine: products that run when their stream lets them, and whose arguments are
// checked as cuBLAS checks them. What it cannot see, memory that is too small, is a fault here.
#include <algorithm>
#include <cstring>
#include <type_traits>
#include <vector>

#include <cublas_v2.h>

#include "core/base/error.h"
#include "core/tensor/dtype.h"
#include "tests/cuda_sim/machine.h"

struct cublasContext {
  cudaStream_t stream = nullptr;
  void* workspace = nullptr;
  size_t workspace_bytes = 0;
};

namespace anabranch::cuda_sim {
namespace {

// A matrix by columns in device memory, and those that follow it.
struct Matrix {
  const void* data;
  cudaDataType_t type;
  int64_t rows, columns, leading, stride;
  bool transposed;

  // Of all of a batch, from the first element to the last.
  [[nodiscard]] size_t bytes(int64_t batch) const {
    if (rows == 0 || columns == 0) return 0;
    const int64_t last = (batch - 1) * stride + (columns - 1) * leading + rows;
    return static_cast<size_t>(last) * (type == CUDA_R_16BF ? 2 : type == CUDA_R_64F ? 8 : 4);
  }
};

struct Product {
  int64_t m, n, k, batch;
  double alpha, beta;
  Matrix a, b, c;
};

template <class T>
Accumulator<T> widened(T value) {
  return static_cast<Accumulator<T>>(value);
}

// op(x) of one of a batch, by rows.
template <class T>
std::vector<Accumulator<T>> by_rows(const Matrix& x, int64_t index) {
  const T* from = static_cast<const T*>(x.data) + index * x.stride;
  std::vector<Accumulator<T>> to(static_cast<size_t>(x.rows * x.columns));
  for (int64_t j = 0; j < x.columns; ++j) {
    for (int64_t i = 0; i < x.rows; ++i) {
      const int64_t at = x.transposed ? j * x.rows + i : i * x.columns + j;
      to[static_cast<size_t>(at)] = widened(from[j * x.leading + i]);
    }
  }
  return to;
}

template <class In, class Out>
void run_one(const Product& p, int64_t index) {
  using A = Accumulator<In>;
  const std::vector<A> a = by_rows<In>(p.a, index), b = by_rows<In>(p.b, index);
  Out* c = static_cast<Out*>(const_cast<void*>(p.c.data)) + index * p.c.stride;
  std::vector<A> sums(static_cast<size_t>(p.n));
  for (int64_t i = 0; i < p.m; ++i) {
    std::fill(sums.begin(), sums.end(), A(0));
    for (int64_t l = 0; l < p.k; ++l) {
      const A factor = a[static_cast<size_t>(i * p.k + l)];
      const A* row = b.data() + l * p.n;
      for (int64_t j = 0; j < p.n; ++j) sums[static_cast<size_t>(j)] += factor * row[j];
    }
    for (int64_t j = 0; j < p.n; ++j) {
      Out& to = c[j * p.c.leading + i];
      const A sum = A(p.alpha) * sums[static_cast<size_t>(j)];
      to = Out(p.beta == 0 ? sum : sum + A(p.beta) * static_cast<A>(widened(to)));
    }
  }
}

template <class In, class Out>
void run_all_of(const Product& p) {
  for (int64_t i = 0; i < p.batch; ++i) run_one<In, Out>(p, i);
}

void run(const Product& p) {
  if (p.a.type == CUDA_R_32F) return run_all_of<float, float>(p);
  if (p.a.type == CUDA_R_64F) return run_all_of<double, double>(p);
  if (p.c.type == CUDA_R_32F) return run_all_of<Bf16, float>(p);
  run_all_of<Bf16, Bf16>(p);
}

cublasStatus_t refuse(cublasStatus_t status, const std::string& why) {
  reject(cudaErrorInvalidValue, "cuBLAS: " + why);
  return status;
}

bool supported(const Product& p, cublasComputeType_t sums) {
  if (p.a.type != p.b.type) return false;
  if (p.a.type == CUDA_R_64F) return p.c.type == CUDA_R_64F && sums == CUBLAS_COMPUTE_64F;
  if (sums != CUBLAS_COMPUTE_32F) return false;
  return p.c.type == CUDA_R_32F || (p.a.type == CUDA_R_16BF && p.c.type == CUDA_R_16BF);
}

cublasStatus_t check(const Product& p, cublasComputeType_t sums) {
  for (const Matrix* x : {&p.a, &p.b, &p.c}) {
    if (x->leading < std::max<int64_t>(1, x->rows)) {
      return refuse(CUBLAS_STATUS_INVALID_VALUE,
                    join("a leading dimension of ", x->leading, " for ", x->rows, " rows"));
    }
  }
  if (std::min({p.m, p.n, p.k, p.batch}) < 0) {
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "a negative extent");
  }
  if (!supported(p, sums)) {
    return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "these types do not go together");
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t enqueue(const cublasContext& handle, const Product& p, cublasComputeType_t sums) {
  if (const cublasStatus_t bad = check(p, sums); bad != CUBLAS_STATUS_SUCCESS) return bad;
  if (handle.workspace == nullptr) {
    return refuse(CUBLAS_STATUS_NOT_INITIALIZED, "a product without a workspace of its own");
  }
  if (p.m == 0 || p.n == 0 || p.batch == 0) return CUBLAS_STATUS_SUCCESS;
  for (const Matrix* x : {&p.a, &p.b, &p.c}) {
    const size_t bytes = x->bytes(p.batch);
    if (bytes > 0 && !is_on_device(x->data, bytes)) {
      report_fault(join("cuBLAS: ", x->rows, " x ", x->columns, " elements from ",
                        describe_address(x->data), " on are not device memory"));
      return CUBLAS_STATUS_EXECUTION_FAILED;
    }
  }
  const auto work = [p, device = handle.stream->device, workspace = handle.workspace,
                     bytes = handle.workspace_bytes] {
    if (is_stopped(device)) return;
    std::memset(workspace, 0xFF, std::min<size_t>(bytes, 4096));  // it is written
    run(p);
  };
  Turn turn = take_turn();
  return submit(turn, handle.stream, {work}) == cudaSuccess ? CUBLAS_STATUS_SUCCESS
                                                            : CUBLAS_STATUS_EXECUTION_FAILED;
}

double factor(const void* value, cublasComputeType_t sums) {
  if (sums == CUBLAS_COMPUTE_64F) return *static_cast<const double*>(value);
  return static_cast<double>(*static_cast<const float*>(value));
}

}  // namespace
}  // namespace anabranch::cuda_sim

using namespace anabranch::cuda_sim;  // NOLINT(google-build-using-namespace): the C functions of it

// NOLINTBEGIN: cuBLAS's names.
const char* cublasGetStatusName(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "CUBLAS_STATUS_EXECUTION_FAILED";
    default:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
  }
}

cublasStatus_t cublasCreate(cublasHandle_t* handle) {
  *handle = new cublasContext;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy(cublasHandle_t handle) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (handle->stream != nullptr) {
    Turn turn = take_turn();
    run_until(turn, handle->stream, handle->stream->submitted);
  }
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream) {
  *handle = {stream, nullptr, 0};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetWorkspace(cublasHandle_t handle, void* workspace, size_t bytes) {
  if (!is_on_device(workspace, bytes)) {
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "the workspace is not device memory");
  }
  handle->workspace = workspace;
  handle->workspace_bytes = bytes;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t /*mode*/) {
  return handle != nullptr ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_INITIALIZED;
}

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b,
                            int m, int n, int k, const void* alpha, const void* a,
                            cudaDataType_t a_type, int lda, const void* b, cudaDataType_t b_type,
                            int ldb, const void* beta, void* c, cudaDataType_t c_type, int ldc,
                            cublasComputeType_t sums, cublasGemmAlgo_t algorithm) {
  return cublasGemmStridedBatchedEx(handle, op_a, op_b, m, n, k, alpha, a, a_type, lda, 0, b,
                                    b_type, ldb, 0, beta, c, c_type, ldc, 0, 1, sums, algorithm);
}

cublasStatus_t cublasGemmStridedBatchedEx(
    cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n, int k,
    const void* alpha, const void* a, cudaDataType_t a_type, int lda, long long int stride_a,
    const void* b, cudaDataType_t b_type, int ldb, long long int stride_b, const void* beta,
    void* c, cudaDataType_t c_type, int ldc, long long int stride_c, int batch,
    cublasComputeType_t sums, cublasGemmAlgo_t /*algorithm*/) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  const bool a_turned = op_a == CUBLAS_OP_T, b_turned = op_b == CUBLAS_OP_T;
  const Product p{m,
                  n,
                  k,
                  batch,
                  factor(alpha, sums),
                  factor(beta, sums),
                  {a, a_type, a_turned ? k : m, a_turned ? m : k, lda, stride_a, a_turned},
                  {b, b_type, b_turned ? n : k, b_turned ? k : n, ldb, stride_b, b_turned},
                  {c, c_type, m, n, ldc, stride_c, false}};
  return enqueue(*handle, p, sums);
}

// NOLINTEND
