// The one way kernels are launched and shared memory is declared, for nvcc and for the simulator of
// tests/cuda_sim; what a kernel may use beside this is in that folder's README.
//
//   launch<kernel<T>>({.blocks = dim3(n), .threads = dim3(256)}, stream, arguments...);
//   auto& tile = shared<float[32][33]>();             static shared memory
//   auto* rows = dynamic_shared<float>();             as many bytes as the launch asks for
//   copy_async<16>(to, from); commit_async(); wait_async<0>();
#pragma once

#include <type_traits>

#include <cuda_pipeline.h>
#include <cuda_runtime.h>

#include "core/cuda/check.h"

namespace anabranch::cuda {

// Whether kernels run on the simulator, for the few functions whose other form is PTX.
#ifdef AB_CUDA_SIM
inline constexpr bool kSimulated = true;
#else
inline constexpr bool kSimulated = false;
#endif

// How a kernel is spread; `shared_bytes` of dynamic shared memory for each block.
struct Grid {
  dim3 blocks{1};
  dim3 threads{1};
  size_t shared_bytes = 0;
};

// The most shared memory that a block of the current device can have, in bytes: 163 KiB on sm_80,
// 227 on sm_90, 99 on smaller GPUs of the same generations.
[[nodiscard]] size_t shared_bytes_of_block();

// Allows `kernel` so many bytes of dynamic shared memory on the current device, and never fewer
// than before: CUDA keeps what it was told last, and other threads may be about to launch the
// kernel with more. Asks CUDA when the figure grows.
cudaError_t allow_shared(const void* kernel, size_t bytes);

// Throws Error that names the kernel, found in the `signature` of the function that launched it,
// and what was asked for.
[[noreturn]] void launch_failed(cudaError_t error, const Grid& grid, const char* signature);

template <auto kKernel>
struct Launcher;

// The kernel as a template argument gives its exact parameter types, to which arguments convert.
template <class... P, void (*kKernel)(P...)>
struct Launcher<kKernel> {
  static_assert((!std::is_reference_v<P> && ...), "a kernel's parameters are copied");

  static cudaError_t run(const Grid& grid, cudaStream_t stream, P... arguments) {
    constexpr size_t kWithoutAsking = size_t{48} << 10U;
    if (grid.shared_bytes > kWithoutAsking) {
      const cudaError_t refused =
          allow_shared(reinterpret_cast<const void*>(kKernel), grid.shared_bytes);
      if (refused != cudaSuccess) return refused;
    }
#ifdef AB_CUDA_SIM
    return cuda_sim::launch_kernel<kKernel>(grid.blocks, grid.threads, grid.shared_bytes, stream,
                                            arguments...);
#else
    cudaLaunchConfig_t config{};
    config.gridDim = grid.blocks;
    config.blockDim = grid.threads;
    config.dynamicSmemBytes = grid.shared_bytes;
    config.stream = stream;
    return cudaLaunchKernelEx(&config, kKernel, arguments...);
#endif
  }
};

// Puts a kernel on `stream`; a grid without blocks is nothing to do. Throws Error if the launch is
// refused; a fault of the kernel itself shows at a later call.
template <auto kKernel, class... Arguments>
void launch(const Grid& grid, cudaStream_t stream, Arguments... arguments) {
  if (grid.blocks.x == 0 || grid.blocks.y == 0 || grid.blocks.z == 0) return;
  const cudaError_t error = Launcher<kKernel>::run(grid, stream, arguments...);
  if (error != cudaSuccess) launch_failed(error, grid, __PRETTY_FUNCTION__);
}

// A variable of the block, of type T. Two of one type in one kernel are told apart by a tag:
// shared<float[32], struct First>().
template <class T, class Tag = void>
__device__ __forceinline__ T& shared() {
#ifdef AB_CUDA_SIM
  static const char key = 0;
  return *static_cast<T*>(cuda_sim::static_shared(&key, sizeof(T)));
#else
  __shared__ T variable;
  return variable;
#endif
}

// The block's dynamic shared memory, aligned as tensor cores' loads of tiles and any wider copy
// want it, whatever static memory there is besides.
template <class T>
__device__ __forceinline__ T* dynamic_shared() {
#ifdef AB_CUDA_SIM
  return static_cast<T*>(cuda_sim::dynamic_shared());
#else
  extern __shared__ __align__(128) unsigned char ab_dynamic_shared[];
  return reinterpret_cast<T*>(ab_dynamic_shared);
#endif
}

// For a wide access: a GPU faults where `address` is not a multiple of kBytes; so does the
// simulator, here.
template <int kBytes>
__device__ __forceinline__ void check_aligned([[maybe_unused]] const void* address) {
#ifdef AB_CUDA_SIM
  cuda_sim::check_aligned(address, kBytes);
#endif
}

// The same address of global memory, of which the compiler does not know how it came about.
template <class T>
__device__ __forceinline__ T* opaque_global(T* address) {
#ifdef AB_CUDA_SIM
  return address;
#else
  size_t global = __cvta_generic_to_global(address);
  asm("" : "+l"(global));
  return static_cast<T*>(__cvta_global_to_generic(global));
#endif
}

// An asynchronous copy of 4, 8 or 16 bytes from global to shared memory.
template <int kBytes>
__device__ __forceinline__ void copy_async(void* to, const void* from) {
  static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16);
  __pipeline_memcpy_async(to, from, kBytes);
}

// The same if there is something to copy; else zeros, and `from` is not read.
template <int kBytes>
__device__ __forceinline__ void copy_async_or_zero(void* to, const void* from, bool there) {
  static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16);
  __pipeline_memcpy_async(to, from, kBytes, there ? 0 : kBytes);
}

__device__ __forceinline__ void commit_async() { __pipeline_commit(); }

// Waits until at most kPending of the committed groups of copies are not done.
template <int kPending>
__device__ __forceinline__ void wait_async() {
  __pipeline_wait_prior(kPending);
}

}  // namespace anabranch::cuda
