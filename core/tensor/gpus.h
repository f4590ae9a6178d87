// The GPUs that this process sees, and what they are.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace anabranch {

struct Gpu {
  std::string name;
  std::string id;            // unlike any other GPU's: "GPU-" and its UUID
  std::string pci;           // where it is on its host, "0000:3b:00.0"
  int64_t memory = 0;        // bytes
  int major = 0, minor = 0;  // what it can do: its compute capability
};

struct GpuSight {
  std::vector<Gpu> gpus;        // by index
  std::string why_none;         // if there are none
  int driver = 0, runtime = 0;  // versions of CUDA, 13000 for 13.0; 0: unknown
};

// What the CUDA runtime says; a build without CUDA sees none.
[[nodiscard]] GpuSight see_gpus();

namespace cuda {

[[nodiscard]] GpuSight see_gpus();

}  // namespace cuda

}  // namespace anabranch
