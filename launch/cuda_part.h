// What became of the part of the program that computes on GPUs, which main.cpp loads or not.
#pragma once

#include "core/tensor/gpus.h"

namespace anabranch {

// The variable in which main.cpp tells the library that it loaded why it is not the one with CUDA.
inline constexpr const char* kWhyNoCuda = "ANABRANCH_WHY_NO_CUDA";

// As see_gpus(); where the program runs without CUDA, the reason is the launcher's.
[[nodiscard]] GpuSight see_gpus_or_why();

}  // namespace anabranch
