#include <mma.h>

#include "core/cuda/reduce.cuh"
#include "core/tensor/pack.cuh"
#include "tests/cuda_sim/dialect.h"

namespace anabranch::cuda_sim::dialect {
namespace {

using cuda::launch;

__global__ void sums_kernel(const float* in, float* out) {
  const float first = cuda::block_sum<64>(in[threadIdx.x]);
  const float twice = cuda::block_sum<64>(2.0F * in[threadIdx.x]);  // in the same shared memory
  out[threadIdx.x] = twice == 2.0F * first ? first : -1.0F;
}

__global__ void lanes_kernel(const float* in, float* out) {
  const unsigned lane = threadIdx.x;
  const float v = in[lane];
  float* mine = out + lane * 7;
  mine[0] = __shfl_sync(cuda::kAllLanes, v, 5);
  mine[1] = __shfl_xor_sync(cuda::kAllLanes, v, 3);
  mine[2] = __shfl_up_sync(cuda::kAllLanes, v, 2);
  mine[3] = __shfl_down_sync(cuda::kAllLanes, v, 2);
  mine[4] = static_cast<float>(__popc(__ballot_sync(cuda::kAllLanes, lane % 3 == 0 ? 1 : 0)));
  const int any = __any_sync(cuda::kAllLanes, lane == 7 ? 1 : 0);
  const int all = __all_sync(cuda::kAllLanes, lane == 7 ? 1 : 0);
  mine[5] = static_cast<float>(2 * any + all);
  mine[6] = static_cast<float>(__match_any_sync(cuda::kAllLanes, lane < 20 ? lane % 10 : 10));
}

__global__ void product_kernel(const Bf16* a, const Bf16* b, float* c) {
  namespace wmma = nvcuda::wmma;
  wmma::fragment<wmma::matrix_a, 16, 16, 16, __nv_bfloat16, wmma::row_major> left;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, __nv_bfloat16, wmma::col_major> right;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
  wmma::fill_fragment(sum, 0.0F);
  wmma::load_matrix_sync(left, reinterpret_cast<const __nv_bfloat16*>(a), 16);
  wmma::load_matrix_sync(right, reinterpret_cast<const __nv_bfloat16*>(b), 16);
  wmma::mma_sync(sum, left, right, sum);
  wmma::store_matrix_sync(c, sum, 16, wmma::mem_row_major);
}

__global__ void indices_kernel(int* out) {
  const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  const unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  const unsigned threads = blockDim.x * blockDim.y * blockDim.z;
  out[block * threads + thread] = static_cast<int>(block * 100 + thread);
}

__global__ void through_bf16_kernel(const float* in, float* out) {
  const int i = static_cast<int>(threadIdx.x) * 4;
  const auto pack = cuda::load<4>(in + i);
  cuda::Pack<float, 4> back;
  for (int j = 0; j < 4; ++j) back.v[j] = cuda::wide(cuda::narrow<Bf16>(pack.v[j]));
  cuda::store(out + i, back);
}

__global__ void much_shared_kernel() {}

}  // namespace

void sums(const float* in, float* out, cudaStream_t stream) {
  launch<sums_kernel>({.threads = dim3(64)}, stream, in, out);
}

void lanes(const float* in, float* out, cudaStream_t stream) {
  launch<lanes_kernel>({.threads = dim3(32)}, stream, in, out);
}

void product(const Bf16* a, const Bf16* b, float* c, cudaStream_t stream) {
  launch<product_kernel>({.threads = dim3(32)}, stream, a, b, c);
}

void indices(int* out, cudaStream_t stream) {
  launch<indices_kernel>({.blocks = dim3(2, 2, 3), .threads = dim3(4, 2, 2)}, stream, out);
}

void through_bf16(const float* in, float* out, cudaStream_t stream) {
  launch<through_bf16_kernel>({.threads = dim3(8)}, stream, in, out);
}

void much_shared(size_t bytes, cudaStream_t stream) {
  launch<much_shared_kernel>({.threads = dim3(32), .shared_bytes = bytes}, stream);
}

cudaError_t shared_unasked(size_t bytes, cudaStream_t stream) {
  return launch_kernel<much_shared_kernel>(dim3(1), dim3(32), bytes, stream);
}

}  // namespace anabranch::cuda_sim::dialect
