// A queue of a GPU: what is put on it runs in order while the host goes on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/tensor/device.h"

struct CUstream_st;  // what a cudaStream_t points to

namespace anabranch {
namespace cuda {

class Staging;
struct Readback;

}  // namespace cuda

// Of a CPU there is none: program order is its queue, the handle is null and nothing waits.
class Stream {
 public:
  // Makes `device` the calling thread's current one. Throws Error if this build knows no GPU.
  explicit Stream(Device device);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  [[nodiscard]] CUstream_st* handle() const { return handle_; }

  // Has what is put here from now on wait for all that is on `other` now.
  void wait_for(const Stream& other);

  // Returns when all that was put here is done.
  void synchronise() const;

  // From the host's memory to the GPU's. The host goes on, and may write `from` again.
  void upload(void* to, const void* from, size_t bytes) const;
  // From the GPU's memory to the host's, when all that was put here before is done. Waits.
  void download(void* to, const void* from, size_t bytes) const;

  // The same begun: the host goes on. It is waited for by finish_download(), or let go unread with
  // the handle, also after the stream.
  [[nodiscard]] std::shared_ptr<cuda::Readback> start_download(const void* from,
                                                               size_t bytes) const;
  void finish_download(void* to, const cuda::Readback& under_way) const;

  // Times that the host has waited for the GPU here.
  [[nodiscard]] int64_t waits() const;

 private:
  CUstream_st* handle_ = nullptr;
  cuda::Staging* staging_ = nullptr;  // owned; a type that a build without GPUs does not know
  mutable int64_t waits_ = 0;
};

// The GPUs that this build can use; 0 without a driver.
[[nodiscard]] int gpu_count();

}  // namespace anabranch
