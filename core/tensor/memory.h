// Memory from the system, by device; only the pool asks.
#pragma once

#include <cstddef>

#include "core/tensor/device.h"

namespace anabranch::memory {

// `bytes` of memory aligned to at least 64, or nullptr.
void* allocate(Device device, size_t bytes);
void release(Device device, void* block, size_t bytes);

// Copies between any two places that `from` and `to` name.
void copy(void* to_block, Device to, const void* from_block, Device from, size_t bytes);
void fill_zero(Device device, void* block, size_t bytes);

}  // namespace anabranch::memory
