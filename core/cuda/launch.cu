#include <string_view>

#include "core/base/error.h"
#include "core/cuda/launch.cuh"

namespace anabranch::cuda {
namespace {

// "kKernel = gelu_kernel<float>; ..." of "void launch(...) [with auto kKernel = gelu_kernel<..".
std::string_view kernel_in(std::string_view signature) {
  const size_t named = signature.find("kKernel = ");
  return named == std::string_view::npos ? signature : signature.substr(named);
}

std::string text_of(const dim3& extent) { return join(extent.x, " x ", extent.y, " x ", extent.z); }

}  // namespace

void launch_failed(cudaError_t error, const Grid& grid, const char* signature) {
  throw Error(
      Fault::kInternal,
      join("[cuda] launch failed: ", cudaGetErrorName(error), ", ", cudaGetErrorString(error), "; ",
           text_of(grid.blocks), " blocks of ", text_of(grid.threads), " threads with ",
           grid.shared_bytes, " bytes of shared memory, ", kernel_in(signature)));
}

size_t shared_bytes_of_block() {
  int device = 0, bytes = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
        "cudaDeviceGetAttribute");
  return static_cast<size_t>(bytes);
}

}  // namespace anabranch::cuda
