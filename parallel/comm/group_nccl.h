// The group of ranks with GPUs. In a build with CUDA but without NCCL, group_without_nccl.cpp
// stands in its place.
#pragma once

#include <memory>

#include "parallel/comm/group.h"

namespace anabranch::cuda {

// Of more than one rank; see device_group().
std::unique_ptr<Group> nccl_group(std::unique_ptr<Group> host, int device);

}  // namespace anabranch::cuda
