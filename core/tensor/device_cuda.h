// Memory and streams of a GPU, by the CUDA runtime; for core/tensor and parallel/comm alone. Each
// throws Error with CUDA's reason if the runtime refuses, but those that free.
#pragma once

#include <cstddef>

struct CUstream_st;

namespace anabranch::cuda {

[[nodiscard]] int device_count();

// Memory of GPU `device`, or nullptr if there is none left. Freeing waits for the GPU.
[[nodiscard]] void* allocate(int device, size_t bytes);
void release(void* block);

// Within a GPU or from it to the host, in the order of `stream`. To the host it is done when the
// call returns.
void copy(void* to, const void* from, size_t bytes, CUstream_st* stream);
void fill_zero(void* block, size_t bytes, CUstream_st* stream);

[[nodiscard]] CUstream_st* make_stream(int device);
void free_stream(CUstream_st* stream);
void wait_for(CUstream_st* waiting, CUstream_st* other);
void synchronise(CUstream_st* stream);

}  // namespace anabranch::cuda
