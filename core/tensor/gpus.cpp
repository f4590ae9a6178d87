#include "core/tensor/gpus.h"

#include "core/base/build.h"

namespace anabranch {

GpuSight see_gpus() {
  if constexpr (build::kCuda) return cuda::see_gpus();
  return {.gpus = {}, .why_none = "this is the build for the processor"};
}

}  // namespace anabranch
