// Reads a GPU's figures now and then, on a thread of its own: a step takes what was read last.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "monitoring/nvml.h"

namespace anabranch {

class GpuSampler {
 public:
  // Of the GPU at `pci`, first before this returns.
  explicit GpuSampler(const std::string& pci, std::chrono::milliseconds every = kEvery,
                      const std::string& library = "libnvidia-ml.so.1");
  ~GpuSampler();
  GpuSampler(const GpuSampler&) = delete;
  GpuSampler& operator=(const GpuSampler&) = delete;

  // Whether anything is known of the GPU.
  [[nodiscard]] bool present() const { return gpu_ != nullptr; }

  [[nodiscard]] GpuReading latest() const;

  static constexpr std::chrono::milliseconds kEvery{1000};

 private:
  void loop(std::chrono::milliseconds every);

  Nvml nvml_;
  Nvml::Handle gpu_;
  mutable std::mutex lock_;
  std::condition_variable ended_;
  bool ending_ = false;
  GpuReading latest_ = unknown_gpu();
  std::thread thread_;
};

}  // namespace anabranch
