#include <algorithm>
#include <map>
#include <mutex>
#include <string_view>
#include <utility>

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

// The most blocks of a grid along y, and along z; along x there may be 2^31 - 1.
constexpr unsigned kMostBlocks = 65535;

int current_device() {
  int device = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  return device;
}

}  // namespace

cudaError_t allow_shared(const void* kernel, size_t bytes) {
  static std::mutex lock;
  static std::map<std::pair<const void*, int>, size_t> allowed;
  const int device = current_device();
  const std::scoped_lock hold(lock);
  size_t& most = allowed[{kernel, device}];
  if (bytes <= most) return cudaSuccess;
  const cudaError_t error = cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
  if (error == cudaSuccess) most = bytes;
  return error;
}

void launch_failed(cudaError_t error, const Grid& grid, const char* signature) {
  // Where there are as many sequences, or 64 times as many rows.
  if (std::max(grid.blocks.y, grid.blocks.z) > kMostBlocks) {
    throw config_error("[cuda] ", text_of(grid.blocks), " blocks, of which a GPU takes at most ",
                       kMostBlocks, " along the second and third: use a smaller ",
                       "train.micro_batch; ", kernel_in(signature));
  }
  throw Error(
      Fault::kInternal,
      join("[cuda] launch failed: ", cudaGetErrorName(error), ", ", cudaGetErrorString(error), "; ",
           text_of(grid.blocks), " blocks of ", text_of(grid.threads), " threads with ",
           grid.shared_bytes, " bytes of shared memory, ", kernel_in(signature)));
}

size_t shared_bytes_of_block() {
  const int device = current_device();
  int bytes = 0;
  check(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
        "cudaDeviceGetAttribute");
  return static_cast<size_t>(bytes);
}

}  // namespace anabranch::cuda
