#include "core/cuda/reduce.cuh"
#include "core/tensor/pack.cuh"
#include "tests/cuda_sim/faulty.h"

namespace anabranch::cuda_sim::faulty {
namespace {

using cuda::launch;
using cuda::shared;

__global__ void reverse_kernel(const float* in, float* out, bool right) {
  auto& tile = shared<float[256]>();
  tile[threadIdx.x] = in[threadIdx.x];
  if (right) __syncthreads();
  out[threadIdx.x] = tile[blockDim.x - 1 - threadIdx.x];
}

// Reads what an earlier thread wrote, so that the forward order hides the missing barrier.
__global__ void shift_kernel(const float* in, float* out, bool right) {
  auto& tile = shared<float[256]>();
  tile[threadIdx.x] = in[threadIdx.x];
  if (right) __syncthreads();
  out[threadIdx.x] = threadIdx.x == 0 ? 0.0F : tile[threadIdx.x - 1];
}

__global__ void warp_tree_kernel(const float* in, float* out, bool right) {
  auto& part = shared<float[32]>();
  const unsigned t = threadIdx.x;
  part[t] = in[t];
  if (right) __syncwarp();
  for (unsigned d = 16; d > 0; d /= 2) {
    if (t < d) part[t] += part[t + d];
    if (right) __syncwarp();
  }
  if (t == 0) out[0] = part[0];
}

__global__ void write_after_read_kernel(float* data, bool right) {
  auto& tile = shared<float[64]>();
  const unsigned t = threadIdx.x;
  tile[t] = data[t];
  __syncthreads();
  const float neighbour = tile[(t + 1) % 64];
  if (right) __syncthreads();
  tile[t] = 2.0F * neighbour;
  __syncthreads();
  data[t] = tile[t];
}

__global__ void async_reverse_kernel(const float* in, float* out, bool right) {
  auto& tile = shared<float[128]>();
  const unsigned first = threadIdx.x * 4;
  cuda::copy_async<16>(&tile[first], in + first);
  cuda::commit_async();
  if (right) cuda::wait_async<0>();
  __syncthreads();
  for (unsigned i = first; i < first + 4; ++i) out[i] = tile[127 - i];
}

__global__ void arrival_kernel(int* next, int* order) {
  order[atomicAdd(next, 1)] = static_cast<int>(threadIdx.x);
}

__global__ void sum_kernel(const float* in, float* total, bool right) {
  const float v = in[blockIdx.x * blockDim.x + threadIdx.x];
  const float before = *total;
  if (right) {
    atomicAdd(total, v);
  } else {
    __syncwarp();  // where a GPU could take another warp
    *total = before + v;
  }
}

__global__ void exits_early_kernel(float* data) {
  if (threadIdx.x >= 40) return;
  __syncthreads();
  data[threadIdx.x] = 1.0F;
}

__global__ void two_barriers_kernel(float* data) {
  if (threadIdx.x % 2 == 0) {
    data[threadIdx.x] = 1.0F;
    __syncthreads();
  } else {
    data[threadIdx.x] = 2.0F;
    __syncthreads();
  }
}

__global__ void shuffle_in_a_branch_kernel(float* data) {
  float v = data[threadIdx.x];
  if (threadIdx.x < 16) {
    v += __shfl_xor_sync(cuda::kAllLanes, v, 1);
  } else {
    __syncthreads();
  }
  data[threadIdx.x] = v;
}

__global__ void mixed_collectives_kernel(float* data) {
  if (threadIdx.x < 16) {
    data[threadIdx.x] += __shfl_xor_sync(cuda::kAllLanes, data[threadIdx.x], 1);
  } else {
    data[threadIdx.x] = __ballot_sync(cuda::kAllLanes, 1) != 0U ? 1.0F : 0.0F;
  }
}

__global__ void shuffle_from_outside_kernel(float* data) {
  if (threadIdx.x < 16) {
    data[threadIdx.x] = __shfl_down_sync(0x0000FFFFU, data[threadIdx.x], 8);
  }
}

__global__ void different_masks_kernel(float* data) {
  const unsigned mask = threadIdx.x < 16 ? cuda::kAllLanes : 0xFFFF0001U;
  data[threadIdx.x] = __shfl_xor_sync(mask, data[threadIdx.x], 1);
}

__global__ void reads_shared_kernel(float* data, int at) {
  auto* tile = cuda::dynamic_shared<float>();
  tile[threadIdx.x] = 1.0F;
  if (threadIdx.x == 31) data[0] = tile[at];
}

__global__ void writes_shared_kernel(float* data, int at) {
  auto* tile = cuda::dynamic_shared<float>();
  if (threadIdx.x == 31) tile[at] = 1.0F;
  data[threadIdx.x] = 0.0F;
}

__global__ void writes_static_kernel(float* data, int at) {
  float* tile = shared<float[32]>();
  if (threadIdx.x == 31) tile[at] = 1.0F;
  data[threadIdx.x] = 0.0F;
}

__global__ void reads_kernel(const float* data, int at, float* out) {
  if (threadIdx.x == 31) out[0] = data[at];
}

__global__ void writes_kernel(float* data, int at) {
  if (threadIdx.x == 31) data[at] = 1.0F;
}

__global__ void reads_four_kernel(const float* data, int at, float* out) {
  if (threadIdx.x == 31) out[0] = cuda::load<4>(data + at).v[3];
}

__global__ void adds_to_uninitialised_kernel(float* data) {
  auto& sums = shared<float[32]>();
  sums[threadIdx.x] += 1.0F;
  data[threadIdx.x] = sums[threadIdx.x];
}

__global__ void takes_too_much_shared_kernel(float* data) {
  auto& tile = shared<float[50000]>();
  tile[threadIdx.x] = data[threadIdx.x];
}

__global__ void traps_kernel() { __trap(); }

__global__ void scale_kernel(const float* in, float* out, int n, float factor) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) out[i] = in[i] * factor;
}

}  // namespace

void reverse(const float* in, float* out, bool right, cudaStream_t stream) {
  launch<reverse_kernel>({.threads = dim3(256)}, stream, in, out, right);
}

void shift(const float* in, float* out, bool right, cudaStream_t stream) {
  launch<shift_kernel>({.threads = dim3(256)}, stream, in, out, right);
}

void warp_tree(const float* in, float* out, bool right, cudaStream_t stream) {
  launch<warp_tree_kernel>({.threads = dim3(32)}, stream, in, out, right);
}

void write_after_read(float* data, bool right, cudaStream_t stream) {
  launch<write_after_read_kernel>({.threads = dim3(64)}, stream, data, right);
}

void async_reverse(const float* in, float* out, bool right, cudaStream_t stream) {
  launch<async_reverse_kernel>({.threads = dim3(32)}, stream, in, out, right);
}

void arrival(int* next, int* order, cudaStream_t stream) {
  launch<arrival_kernel>({.threads = dim3(64)}, stream, next, order);
}

void sum(const float* in, float* total, bool right, cudaStream_t stream) {
  launch<sum_kernel>({.blocks = dim3(4), .threads = dim3(64)}, stream, in, total, right);
}

void exits_early(float* data, cudaStream_t stream) {
  launch<exits_early_kernel>({.threads = dim3(64)}, stream, data);
}

void two_barriers(float* data, cudaStream_t stream) {
  launch<two_barriers_kernel>({.threads = dim3(64)}, stream, data);
}

void shuffle_in_a_branch(float* data, cudaStream_t stream) {
  launch<shuffle_in_a_branch_kernel>({.threads = dim3(32)}, stream, data);
}

void mixed_collectives(float* data, cudaStream_t stream) {
  launch<mixed_collectives_kernel>({.threads = dim3(32)}, stream, data);
}

void shuffle_from_outside(float* data, cudaStream_t stream) {
  launch<shuffle_from_outside_kernel>({.threads = dim3(32)}, stream, data);
}

void different_masks(float* data, cudaStream_t stream) {
  launch<different_masks_kernel>({.threads = dim3(32)}, stream, data);
}

void reads_shared(float* data, int at, cudaStream_t stream) {
  launch<reads_shared_kernel>({.threads = dim3(32), .shared_bytes = 128}, stream, data, at);
}

void writes_shared(float* data, int at, cudaStream_t stream) {
  launch<writes_shared_kernel>({.threads = dim3(32), .shared_bytes = 128}, stream, data, at);
}

void writes_static(float* data, int at, cudaStream_t stream) {
  launch<writes_static_kernel>({.threads = dim3(32)}, stream, data, at);
}

void reads(const float* data, int at, float* out, cudaStream_t stream) {
  launch<reads_kernel>({.threads = dim3(32)}, stream, data, at, out);
}

void writes(float* data, int at, cudaStream_t stream) {
  launch<writes_kernel>({.threads = dim3(32)}, stream, data, at);
}

void reads_four(const float* data, int at, float* out, cudaStream_t stream) {
  launch<reads_four_kernel>({.threads = dim3(32)}, stream, data, at, out);
}

void adds_to_uninitialised(float* data, cudaStream_t stream) {
  launch<adds_to_uninitialised_kernel>({.threads = dim3(32)}, stream, data);
}

void takes_too_much_shared(float* data, cudaStream_t stream) {
  launch<takes_too_much_shared_kernel>({.threads = dim3(32)}, stream, data);
}

void traps(cudaStream_t stream) { launch<traps_kernel>({}, stream); }

void scale(const float* in, float* out, int n, float factor, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>((n + 63) / 64);
  launch<scale_kernel>({.blocks = dim3(blocks), .threads = dim3(64)}, stream, in, out, n, factor);
}

}  // namespace anabranch::cuda_sim::faulty
