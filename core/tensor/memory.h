// Memory from the system, by device, which only the pool asks for, and copies.
#pragma once

#include <cstddef>

#include "core/tensor/device.h"

struct CUstream_st;

namespace anabranch::memory {

// `bytes` of memory aligned to at least 64, or nullptr. Releasing a GPU's waits for it.
void* allocate(Device device, size_t bytes);
void release(Device device, void* block, size_t bytes);

// Copies within the host's or within one GPU's memory, in the order of the latter's `stream`.
void copy(Device device, void* to, const void* from, size_t bytes, CUstream_st* stream);
void fill_zero(Device device, void* block, size_t bytes, CUstream_st* stream);

}  // namespace anabranch::memory
