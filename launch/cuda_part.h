// What became of the part of the program that computes on GPUs, which main.cpp loads or not.
#pragma once

#include "core/tensor/gpus.h"

namespace anabranch {

// The variable in which main.cpp tells the library that it loaded why it is not the one with CUDA.
inline constexpr const char* kWhyNoCuda = "ANABRANCH_WHY_NO_CUDA";

// The variable in which it tells that ANABRANCH_DEVICE or an argument is cuda.
inline constexpr const char* kGpuDemanded = "ANABRANCH_GPU_DEMANDED";

[[nodiscard]] bool gpu_is_demanded();

// As see_gpus(); where the program runs without CUDA, the reason is the launcher's.
[[nodiscard]] GpuSight see_gpus_or_why();

}  // namespace anabranch
