#include "core/cuda/check.h"

#include <cuda_runtime.h>

#include "core/base/error.h"

namespace anabranch::cuda {

void check(int error, const char* call) {
  if (error == cudaSuccess) return;
  const auto code = static_cast<cudaError_t>(error);
  throw Error(Fault::kInternal, join("[cuda] ", call, " failed: ", cudaGetErrorName(code), ", ",
                                     cudaGetErrorString(code)));
}

}  // namespace anabranch::cuda
