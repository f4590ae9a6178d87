#include "monitoring/disk_sampler.h"

#include <limits>
#include <sys/statvfs.h>
#include <utility>

namespace anabranch {

DiskSampler::DiskSampler(Metrics& metrics, std::string folder, std::chrono::milliseconds every)
    : metrics_(metrics), folder_(std::move(folder)) {
  look();
  thread_ = std::thread([this, every] { loop(every); });
}

DiskSampler::~DiskSampler() {
  {
    const std::scoped_lock hold(lock_);
    ending_ = true;
  }
  ended_.notify_all();
  thread_.join();
}

void DiskSampler::look() {
  double bytes = std::numeric_limits<double>::quiet_NaN(), files = bytes;

  struct statvfs space {};

  if (statvfs(folder_.c_str(), &space) == 0) {
    // What others than root may take.
    bytes = static_cast<double>(space.f_bavail) * static_cast<double>(space.f_frsize);
    if (space.f_files > 0) files = static_cast<double>(space.f_favail);
  }
  metrics_.set(Metric::kDiskFree, bytes);
  metrics_.set(Metric::kDiskFreeFiles, files);
}

void DiskSampler::loop(std::chrono::milliseconds every) {
  std::unique_lock hold(lock_);
  while (!ended_.wait_for(hold, every, [this] { return ending_; })) {
    hold.unlock();
    look();
    hold.lock();
  }
}

}  // namespace anabranch
