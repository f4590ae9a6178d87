#include "core/tensor/memory.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>

#include "core/base/build.h"
#include "core/base/error.h"

namespace anabranch::memory {
namespace {

constexpr size_t kHugePage = size_t{2} << 20U;

void check_cpu(Device device) {
  AB_CHECK(device.is_cpu(), "[memory] this build has no GPU memory; set device: cpu");
}

}  // namespace

void* allocate(Device device, size_t bytes) {
  check_cpu(device);
  const bool large = bytes >= kHugePage;
  const size_t alignment = large ? kHugePage : 64;
  const size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  void* block = std::aligned_alloc(alignment, std::max(rounded, alignment));
  // Fewer page faults, where a fault is what costs; a kernel without huge pages ignores it.
  if (large && block != nullptr) madvise(block, rounded, MADV_HUGEPAGE);
  return block;
}

void release(Device device, void* block, size_t /*bytes*/) {
  if (device.is_cpu()) std::free(block);
}

void copy(void* to_block, Device to, const void* from_block, Device from, size_t bytes) {
  check_cpu(to);
  check_cpu(from);
  if (bytes > 0) std::memcpy(to_block, from_block, bytes);
}

void fill_zero(Device device, void* block, size_t bytes) {
  check_cpu(device);
  if (bytes > 0) std::memset(block, 0, bytes);
}

}  // namespace anabranch::memory
