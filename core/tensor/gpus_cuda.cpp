#include <array>
#include <cstdio>

#include <cuda_runtime.h>

#include "core/base/error.h"
#include "core/cuda/check.h"
#include "core/tensor/gpus.h"

namespace anabranch::cuda {
namespace {

// "GPU-01234567-89ab-...", as the driver's tools write it.
std::string id_of(const cudaUUID_t& uuid) {
  std::string text = "GPU";
  for (int i = 0; i < 16; ++i) {
    std::array<char, 4> byte{};
    const bool group = i == 0 || i == 4 || i == 6 || i == 8 || i == 10;
    std::snprintf(byte.data(), byte.size(), "%s%02x", group ? "-" : "",
                  static_cast<unsigned>(static_cast<unsigned char>(uuid.bytes[i])));
    text += byte.data();
  }
  return text;
}

Gpu describe(int index) {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, index), "cudaGetDeviceProperties");
  std::array<char, 32> pci{};
  check(cudaDeviceGetPCIBusId(pci.data(), static_cast<int>(pci.size()), index),
        "cudaDeviceGetPCIBusId");
  return {.name = properties.name,
          .id = id_of(properties.uuid),
          .pci = pci.data(),
          .memory = static_cast<int64_t>(properties.totalGlobalMem),
          .major = properties.major,
          .minor = properties.minor};
}

}  // namespace

GpuSight see_gpus() {
  GpuSight sight;
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  // Versions are known without a GPU, and what is not is no error of a later call.
  if (cudaDriverGetVersion(&sight.driver) != cudaSuccess) sight.driver = 0;
  if (cudaRuntimeGetVersion(&sight.runtime) != cudaSuccess) sight.runtime = 0;
  cudaGetLastError();
  if (error != cudaSuccess || count == 0) {
    const cudaError_t shown = error != cudaSuccess ? error : cudaErrorNoDevice;
    sight.why_none =
        join("CUDA finds no GPU: ", cudaGetErrorName(shown), ", ", cudaGetErrorString(shown));
    return sight;
  }
  for (int i = 0; i < count; ++i) sight.gpus.push_back(describe(i));
  return sight;
}

}  // namespace anabranch::cuda
