#include "core/base/error.h"
#include "parallel/comm/group_nccl.h"
#include "parallel/comm/nccl_comm.h"

namespace anabranch::cuda {

std::unique_ptr<Group> nccl_group(std::unique_ptr<Group> host, int /*device*/) {
  throw config_error(
      "[nccl] ", host->size(), " ranks with GPUs, but this build has no NCCL: run one ",
      "rank, or install libnccl-dev, or NVIDIA's nvidia-nccl-cu13 and give its folder ",
      "as NCCL_ROOT, and build again");
}

std::string nccl_version() { return "none"; }

}  // namespace anabranch::cuda
