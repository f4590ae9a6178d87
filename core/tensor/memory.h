// Memory from the system, by device; only the pool asks.
#pragma once

#include <cstddef>

#include "core/tensor/device.h"

struct CUstream_st;

namespace anabranch::memory {

// `bytes` of memory aligned to at least 64, or nullptr. Releasing a GPU's waits for it.
void* allocate(Device device, size_t bytes);
void release(Device device, void* block, size_t bytes);

// Copies between any two places that `from` and `to` name. `stream` is a GPU's if one of them is,
// and gives the order; memory of the host may be used when the call returns.
void copy(void* to_block, Device to, const void* from_block, Device from, size_t bytes,
          CUstream_st* stream);
void fill_zero(Device device, void* block, size_t bytes, CUstream_st* stream);

}  // namespace anabranch::memory
