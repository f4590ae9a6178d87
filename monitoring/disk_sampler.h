// Looks now and then how much room is left on a run's disk, on a thread of its own: a file system
// that is far away may take its time to answer.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "monitoring/metrics.h"

namespace anabranch {

class DiskSampler {
 public:
  // Sets disk_free_bytes and disk_free_inodes, first before this returns. Not-a-number where the
  // system does not tell, as of inodes on a file system that does not count them.
  //
  //   metrics  must outlive this
  //   folder   on the disk in question
  DiskSampler(Metrics& metrics, std::string folder, std::chrono::milliseconds every = kEvery);
  ~DiskSampler();
  DiskSampler(const DiskSampler&) = delete;
  DiskSampler& operator=(const DiskSampler&) = delete;

  static constexpr std::chrono::milliseconds kEvery{10000};

 private:
  void look();
  void loop(std::chrono::milliseconds every);

  Metrics& metrics_;
  const std::string folder_;
  std::mutex lock_;
  std::condition_variable ended_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace anabranch
