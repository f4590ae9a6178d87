#include "launch/cuda_part.h"

#include <cstdlib>

namespace anabranch {

bool gpu_is_demanded() { return std::getenv(kGpuDemanded) != nullptr; }

GpuSight see_gpus_or_why() {
  GpuSight sight = see_gpus();
  const char* why = std::getenv(kWhyNoCuda);
  if (sight.gpus.empty() && why != nullptr) sight.why_none = why;
  return sight;
}

}  // namespace anabranch
