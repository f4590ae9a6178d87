#include "parallel/comm/device_group.h"

#include <utility>

#include "core/base/build.h"
#include "core/base/error.h"
#include "parallel/comm/group_nccl.h"
#include "parallel/comm/nccl_comm.h"

namespace anabranch {

std::unique_ptr<Group> device_group(std::unique_ptr<Group> host, Device device) {
  if (device.is_cpu()) return host;
  AB_CHECK(build::kCuda, "[group] this build knows no GPU; set device: cpu");
  if (host->size() == 1) return host;
  if constexpr (build::kCuda) return cuda::nccl_group(std::move(host), device.index);
  return host;
}

std::string nccl_version() {
  if constexpr (build::kCuda) return cuda::nccl_version();
  return "none";
}

}  // namespace anabranch
