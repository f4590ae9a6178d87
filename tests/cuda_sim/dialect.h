// Right kernels that use what the simulator offers to kernels.
#pragma once

#include <cuda_runtime.h>

#include "core/tensor/bf16.h"

namespace anabranch::cuda_sim::dialect {

// out[i]: the sum of all n inputs, for n = 64; and what lane i of the first warp got by each
// shuffle and vote: 6 values each.
void sums(const float* in, float* out, cudaStream_t stream);
void lanes(const float* in, float* out, cudaStream_t stream);
// c = a b of 16 x 16 tiles, b by columns.
void product(const Bf16* a, const Bf16* b, float* c, cudaStream_t stream);
// out = in, one element a thread in blocks of (4, 2, 2) and a grid of (2, 2, 3).
void indices(int* out, cudaStream_t stream);
// wide and narrow again, n = 32.
void through_bf16(const float* in, float* out, cudaStream_t stream);
// Nothing, with so many bytes of shared memory.
void much_shared(size_t bytes, cudaStream_t stream);
// The same, by a launch that does not ask CUDA whether it may.
cudaError_t shared_unasked(size_t bytes, cudaStream_t stream);

}  // namespace anabranch::cuda_sim::dialect
