// Memory of the simulated GPU: between pages that fault, and poisoned.
#pragma once

#include <cstddef>
#include <string>

namespace anabranch::cuda_sim {

// `size` bytes that end at a page which may not be touched: an access past the end faults at once,
// reads too. They are filled with 0xFF, which is a NaN in every floating type. The at most 31 bytes
// that alignment leaves behind them, and what lies in front, hold a signalling NaN of float and
// bf16, which no arithmetic gives back: is_intact() sees writes there. Aligned to 32. Returns
// nullptr if there is no memory.
void* allocate_guarded(size_t size);
[[nodiscard]] bool is_intact(const void* block, size_t size);
void release_guarded(void* block, size_t size);

void poison(void* block, size_t size);

// Turns a faulting access of a simulated thread into the fault of its kernel.
void catch_bad_accesses();

}  // namespace anabranch::cuda_sim
