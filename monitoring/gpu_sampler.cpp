#include "monitoring/gpu_sampler.h"

namespace anabranch {

GpuSampler::GpuSampler(const std::string& pci, std::chrono::milliseconds every,
                       const std::string& library)
    : nvml_(library), gpu_(nvml_.find(pci)) {
  if (!present()) return;
  latest_ = nvml_.read(gpu_);
  thread_ = std::thread([this, every] { loop(every); });
}

GpuSampler::~GpuSampler() {
  if (!thread_.joinable()) return;
  {
    const std::scoped_lock hold(lock_);
    ending_ = true;
  }
  ended_.notify_all();
  thread_.join();
}

GpuReading GpuSampler::latest() const {
  const std::scoped_lock hold(lock_);
  return latest_;
}

void GpuSampler::loop(std::chrono::milliseconds every) {
  std::unique_lock hold(lock_);
  while (!ended_.wait_for(hold, every, [this] { return ending_; })) {
    hold.unlock();  // the driver may take its time
    const GpuReading reading = nvml_.read(gpu_);
    hold.lock();
    latest_ = reading;
  }
}

}  // namespace anabranch
