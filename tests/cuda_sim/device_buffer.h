// A stream and typed device memory, for the simulator's own tests.
#pragma once

#include <vector>

#include <cuda_runtime.h>
#include <gtest/gtest.h>

namespace anabranch::cuda_sim {

class TestStream {
 public:
  TestStream() {
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
  }

  ~TestStream() { cudaStreamDestroy(stream_); }

  TestStream(const TestStream&) = delete;
  TestStream& operator=(const TestStream&) = delete;

  [[nodiscard]] cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

// Elements of T on the device; copied in and out on a stream.
template <class T>
class DeviceBuffer {
 public:
  DeviceBuffer(cudaStream_t stream, size_t count) : stream_(stream), count_(count) {
    void* block = nullptr;
    EXPECT_EQ(cudaMalloc(&block, count * sizeof(T)), cudaSuccess);
    data_ = static_cast<T*>(block);
  }

  DeviceBuffer(cudaStream_t stream, const std::vector<T>& values)
      : DeviceBuffer(stream, values.size()) {
    EXPECT_EQ(
        cudaMemcpyAsync(data_, values.data(), count_ * sizeof(T), cudaMemcpyHostToDevice, stream_),
        cudaSuccess);
  }

  ~DeviceBuffer() { cudaFree(data_); }

  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

  [[nodiscard]] T* get() const { return data_; }

  // What the work of the stream so far leaves; of a device that a fault stopped, what there was.
  [[nodiscard]] std::vector<T> host() const {
    std::vector<T> values(count_);
    cudaMemcpyAsync(values.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost, stream_);
    return values;
  }

 private:
  cudaStream_t stream_;
  size_t count_;
  T* data_ = nullptr;
};

// 0.5, 1.5, 2.5, ...
inline std::vector<float> ramp(size_t count) {
  std::vector<float> values;
  for (size_t i = 0; i < count; ++i) values.push_back(static_cast<float>(i) + 0.5F);
  return values;
}

}  // namespace anabranch::cuda_sim
