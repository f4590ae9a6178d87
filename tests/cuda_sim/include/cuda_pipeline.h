// Asynchronous copies to shared memory: made only when waited for, so that a missing wait shows.
#pragma once

#include "tests/cuda_sim/device.h"

// NOLINTBEGIN: these names are CUDA's.
inline void __pipeline_memcpy_async(void* to, const void* from, size_t bytes, size_t zfill = 0) {
  anabranch::cuda_sim::copy_async(to, from, bytes, zfill);
}

inline void __pipeline_commit() { anabranch::cuda_sim::commit_async(); }

inline void __pipeline_wait_prior(unsigned pending_batches) {
  anabranch::cuda_sim::wait_async(pending_batches);
}

// NOLINTEND
