// Groups of ranks whose tensors are on GPUs.
#pragma once

#include <memory>
#include <string>

#include "core/tensor/device.h"
#include "parallel/comm/group.h"

namespace anabranch {

// Collective. A group of the ranks of `host` whose collectives on tensors of the GPU `device`, of
// which each rank has its own, go from GPU to GPU by NCCL; those on tensors of the CPU go to
// `host`, as does what NCCL needs to begin. For a CPU, or a rank alone, it is `host`.
//
// Throws Error if this build knows no GPU, or for several ranks has no NCCL.
std::unique_ptr<Group> device_group(std::unique_ptr<Group> host, Device device);

// Of the NCCL that runs, "2.28.9"; "none" without.
[[nodiscard]] std::string nccl_version();

}  // namespace anabranch
