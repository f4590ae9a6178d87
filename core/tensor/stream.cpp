#include "core/tensor/stream.h"

#include "core/base/build.h"
#include "core/base/error.h"
#include "core/tensor/device_cuda.h"
#include "core/tensor/staging_cuda.h"

namespace anabranch {

Stream::Stream(Device device) {
  if (device.is_cpu()) return;
  AB_CHECK(build::kCuda, "[stream] this build knows no GPU; set device: cpu");
  if constexpr (build::kCuda) {
    handle_ = cuda::make_stream(device.index);
    staging_ = new cuda::Staging(handle_);
  }
}

Stream::~Stream() {
  if constexpr (build::kCuda) {
    delete staging_;
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
    if (handle_ == nullptr) return;
    ++waits_;
    cuda::synchronise(handle_);
  }
}

void Stream::upload(void* to, const void* from, size_t bytes) const {
  AB_CHECK(staging_ != nullptr, "[stream] an upload without a GPU");
  if constexpr (build::kCuda) staging_->upload(to, from, bytes);
}

void Stream::download(void* to, const void* from, size_t bytes) const {
  AB_CHECK(staging_ != nullptr, "[stream] a download without a GPU");
  if (bytes == 0) return;
  ++waits_;
  if constexpr (build::kCuda) cuda::copy(to, from, bytes, handle_);
}

std::shared_ptr<cuda::Readback> Stream::start_download(const void* from, size_t bytes) const {
  AB_CHECK(staging_ != nullptr, "[stream] a download without a GPU");
  if constexpr (build::kCuda) return staging_->download(from, bytes);
  return nullptr;
}

void Stream::finish_download(void* to, const cuda::Readback& under_way) const {
  AB_CHECK(staging_ != nullptr, "[stream] a download without a GPU");
  ++waits_;
  if constexpr (build::kCuda) staging_->wait(under_way, to);
}

int64_t Stream::waits() const {
  if constexpr (build::kCuda) {
    if (staging_ != nullptr) return waits_ + staging_->waits();
  }
  return 0;
}

int gpu_count() {
  if constexpr (build::kCuda) return cuda::device_count();
  return 0;
}

}  // namespace anabranch
