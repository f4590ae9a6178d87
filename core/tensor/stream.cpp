#include "core/tensor/stream.h"

#include "core/base/build.h"
#include "core/base/error.h"
#include "core/tensor/device_cuda.h"

namespace anabranch {

Stream::Stream(Device device) {
  if (device.is_cpu()) return;
  AB_CHECK(build::kCuda, "[stream] this build knows no GPU; set device: cpu");
  if constexpr (build::kCuda) handle_ = cuda::make_stream(device.index);
}

Stream::~Stream() {
  if constexpr (build::kCuda) {
    if (handle_ != nullptr) cuda::free_stream(handle_);
  }
}

void Stream::wait_for(const Stream& other) {
  if constexpr (build::kCuda) {
    if (handle_ != nullptr && other.handle_ != nullptr) cuda::wait_for(handle_, other.handle_);
  }
}

void Stream::synchronise() const {
  if constexpr (build::kCuda) {
    if (handle_ != nullptr) cuda::synchronise(handle_);
  }
}

int gpu_count() {
  if constexpr (build::kCuda) return cuda::device_count();
  return 0;
}

}  // namespace anabranch
