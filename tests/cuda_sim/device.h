// The device side of CUDA for a host compiler: what a kernel's built-in names mean here.
// `include/cuda_runtime.h` brings it in; kernels never name it.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>

namespace anabranch::cuda_sim {

// Where in a kernel's source a thread waits.
struct Site {
  const char* file = "";
  int line = 0;
};

// Stops the kernel that runs: what it did wrong.
[[noreturn]] void fault(const std::string& what);

void block_barrier(Site site);
[[nodiscard]] int lane_id();

// Shared memory of the running block: the dynamic part, and a static variable known by `key`.
[[nodiscard]] void* dynamic_shared();
[[nodiscard]] void* static_shared(const void* key, size_t size);

// All lanes in `mask` that have not exited meet here; the last to come runs complete(), which may
// read and write every lane's slot. A fault if lanes meet in different calls or with other masks.
using Complete = void (*)(unsigned live, void* const* slots);

struct Collective {
  const char* name;
  unsigned mask;
  void* slot;
  Complete complete;
  Site site;
};

void warp_collective(const Collective& call);

// In the random order, other threads may run before an atomic access.
void before_atomic();

// Copies to shared memory are kept per thread and made only when waited for: a missing wait shows.
// The last `zeros` of the bytes are not read and become 0.
void copy_async(void* to, const void* from, size_t bytes, size_t zeros);
void commit_async();
void wait_async(unsigned pending_batches);

// A fault unless `address` is a multiple of `bytes`, as a GPU demands of a wide access.
void check_aligned(const void* address, size_t bytes);

template <class F>
void for_lanes(unsigned mask, F&& f) {
  for (; mask != 0; mask &= mask - 1) f(std::countr_zero(mask));
}

}  // namespace anabranch::cuda_sim

// NOLINTBEGIN: these names are CUDA's.
struct uint3 {
  unsigned x, y, z;
};

struct dim3 {
  unsigned x, y, z;

  constexpr dim3(unsigned blocks_x = 1, unsigned blocks_y = 1, unsigned blocks_z = 1)
      : x(blocks_x), y(blocks_y), z(blocks_z) {}
};

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)

// Kept up to date whenever a fiber begins to run.
extern constinit thread_local uint3 threadIdx;
extern constinit thread_local uint3 blockIdx;
extern constinit thread_local dim3 blockDim;
extern constinit thread_local dim3 gridDim;

inline void __syncthreads(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  anabranch::cuda_sim::block_barrier({file, line});
}

inline int min(int a, int b) { return a < b ? a : b; }

inline int max(int a, int b) { return a > b ? a : b; }

// As CUDA's: 0 where y is above 2^126.
inline float __fdividef(float x, float y) {
  const bool huge = y > 0x1p126F || y < -0x1p126F;
  return huge ? x * 0.0F : x / y;
}

inline void __trap() { anabranch::cuda_sim::fault("__trap()"); }

// NOLINTEND
