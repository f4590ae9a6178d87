#include "core/tensor/device_cuda.h"

#include <cuda_runtime.h>

#include "core/cuda/check.h"

namespace anabranch::cuda {

int device_count() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  cudaGetLastError();  // no driver is no error: it must not show at a later call
  return 0;
}

void* allocate(int device, size_t bytes) {
  check(cudaSetDevice(device), "cudaSetDevice");
  void* block = nullptr;
  const cudaError_t error = cudaMalloc(&block, bytes);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return nullptr;
  }
  check(error, "cudaMalloc");
  return block;
}

void release(void* block) { cudaFree(block); }

void copy(void* to, const void* from, size_t bytes, CUstream_st* stream) {
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream), "cudaMemcpyAsync");
}

void fill_zero(void* block, size_t bytes, CUstream_st* stream) {
  check(cudaMemsetAsync(block, 0, bytes, stream), "cudaMemsetAsync");
}

CUstream_st* make_stream(int device) {
  check(cudaSetDevice(device), "cudaSetDevice");
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  return stream;
}

void free_stream(CUstream_st* stream) { cudaStreamDestroy(stream); }

void wait_for(CUstream_st* waiting, CUstream_st* other) {
  cudaEvent_t now = nullptr;
  check(cudaEventCreateWithFlags(&now, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  const cudaError_t recorded = cudaEventRecord(now, other);
  const cudaError_t waits = cudaStreamWaitEvent(waiting, now, 0);
  cudaEventDestroy(now);  // goes when the work that waits for it has
  check(recorded, "cudaEventRecord");
  check(waits, "cudaStreamWaitEvent");
}

void synchronise(CUstream_st* stream) {
  check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
}

}  // namespace anabranch::cuda
