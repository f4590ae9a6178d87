// Kernels with a planted fault each; those with a `right` argument are right when it is true.
#pragma once

#include <cuda_runtime.h>

namespace anabranch::cuda_sim::faulty {

// One block each. Reversed and shifted copies of 256 elements through shared memory.
void reverse(const float* in, float* out, bool right, cudaStream_t stream);
void shift(const float* in, float* out, bool right, cudaStream_t stream);
// The sum of 32 elements by a tree in shared memory.
void warp_tree(const float* in, float* out, bool right, cudaStream_t stream);
// 64 elements, twice their neighbour: the tile is written again while others read it.
void write_after_read(float* data, bool right, cudaStream_t stream);
// 128 elements reversed through an asynchronous copy.
void async_reverse(const float* in, float* out, bool right, cudaStream_t stream);
// Who comes first: order[i] is the thread that was the i-th of 64.
void arrival(int* next, int* order, cudaStream_t stream);
// The sum of 256 elements by 4 blocks, with an atomic addition or without.
void sum(const float* in, float* total, bool right, cudaStream_t stream);

void exits_early(float* data, cudaStream_t stream);
void two_barriers(float* data, cudaStream_t stream);
void shuffle_in_a_branch(float* data, cudaStream_t stream);
void mixed_collectives(float* data, cudaStream_t stream);
void shuffle_from_outside(float* data, cudaStream_t stream);
void different_masks(float* data, cudaStream_t stream);

// 32 threads; thread 31 reads or writes element `at` of 32.
void reads_shared(float* data, int at, cudaStream_t stream);
void writes_shared(float* data, int at, cudaStream_t stream);
void writes_static(float* data, int at, cudaStream_t stream);
void reads(const float* data, int at, float* out, cudaStream_t stream);
void writes(float* data, int at, cudaStream_t stream);
void reads_four(const float* data, int at, float* out, cudaStream_t stream);
void adds_to_uninitialised(float* data, cudaStream_t stream);
void takes_too_much_shared(float* data, cudaStream_t stream);
void traps(cudaStream_t stream);

// out = factor in, n elements.
void scale(const float* in, float* out, int n, float factor, cudaStream_t stream);

}  // namespace anabranch::cuda_sim::faulty
