// A kernel launch, and what core/cuda/launch.cuh needs of the simulator.
#pragma once

#include <functional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <cuda_runtime.h>

namespace anabranch::cuda_sim {

struct KernelCall {
  std::string name;
  const void* kernel = nullptr;
  dim3 grid, block;
  size_t shared_bytes = 0;
  std::function<void()> body;         // what one thread does
  std::vector<const void*> pointers;  // the arguments that are pointers

  [[nodiscard]] size_t blocks() const { return size_t{grid.x} * grid.y * grid.z; }

  [[nodiscard]] size_t threads() const { return size_t{block.x} * block.y * block.z; }
};

// Puts a kernel on a stream. Refuses a bad geometry, and pointers to what is not device memory.
cudaError_t launch(KernelCall call, cudaStream_t stream);

// "... [with auto kKernel = gelu<float>; P = ...]" -> "gelu<float>"
std::string kernel_name(const std::string& pretty_function);

template <auto kKernel, class... P>
cudaError_t launch_kernel(dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream,
                          P... arguments) {
  KernelCall call{kernel_name(__PRETTY_FUNCTION__),
                  reinterpret_cast<const void*>(kKernel),
                  grid,
                  block,
                  shared_bytes,
                  {},
                  {}};
  [[maybe_unused]] const auto note = [&]<class T>(const T& argument) {
    if constexpr (std::is_pointer_v<T>) call.pointers.push_back(argument);
  };
  (note(arguments), ...);
  call.body = [all = std::tuple<P...>(arguments...)] { std::apply(kKernel, all); };
  return launch(std::move(call), stream);
}

}  // namespace anabranch::cuda_sim
