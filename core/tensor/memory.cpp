#include "core/tensor/memory.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>

#include "core/base/build.h"
#include "core/base/error.h"
#include "core/tensor/device_cuda.h"

namespace anabranch::memory {
namespace {

constexpr size_t kHugePage = size_t{2} << 20U;

void check_device(Device device) {
  AB_CHECK(device.is_cpu() || build::kCuda,
           "[memory] this build has no GPU memory; set device: cpu");
}

}  // namespace

void* allocate(Device device, size_t bytes) {
  check_device(device);
  if constexpr (build::kCuda) {
    if (device.is_cuda()) return cuda::allocate(device.index, bytes);
  }
  const bool large = bytes >= kHugePage;
  const size_t alignment = large ? kHugePage : 64;
  const size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  void* block = std::aligned_alloc(alignment, std::max(rounded, alignment));
  // Fewer page faults, where a fault is what costs; a kernel without huge pages ignores it.
  if (large && block != nullptr) madvise(block, rounded, MADV_HUGEPAGE);
  return block;
}

void release(Device device, void* block, size_t /*bytes*/) {
  if (device.is_cpu()) return std::free(block);
  if constexpr (build::kCuda) cuda::release(block);
}

void copy(Device device, void* to, const void* from, size_t bytes,
          [[maybe_unused]] CUstream_st* stream) {
  check_device(device);
  if (bytes == 0) return;
  if (device.is_cpu()) {
    std::memcpy(to, from, bytes);
  } else {
    if constexpr (build::kCuda) cuda::copy(to, from, bytes, stream);
  }
}

void fill_zero(Device device, void* block, size_t bytes, [[maybe_unused]] CUstream_st* stream) {
  check_device(device);
  if (bytes == 0) return;
  if (device.is_cpu()) {
    std::memset(block, 0, bytes);
  } else {
    if constexpr (build::kCuda) cuda::fill_zero(block, bytes, stream);
  }
}

}  // namespace anabranch::memory
