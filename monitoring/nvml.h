// What the driver's management library (NVML) says of GPUs. It comes with the driver and is looked
// for when the program runs: where it is not, or lacks a function, figures are unknown.
#pragma once

#include <memory>
#include <string>

#include "monitoring/gpu_metrics.h"

struct nvmlDevice_st;  // NOLINT(readability-identifier-naming): NVML's name

namespace anabranch {

class Nvml {
 public:
  using Handle = nvmlDevice_st*;

  explicit Nvml(const std::string& library = "libnvidia-ml.so.1");
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  // Empty if the library works.
  [[nodiscard]] const std::string& why_not() const { return why_not_; }

  // "580.65.06"; empty if unknown.
  [[nodiscard]] std::string driver_version() const;

  // The GPU at "0000:3b:00.0", of which critical errors are counted from now on; null if there is
  // none.
  Handle find(const std::string& pci);

  // Some figures take the driver 20 ms: for a thread of its own.
  [[nodiscard]] GpuReading read(Handle gpu);

  // Links to other GPUs that are up; below 0: unknown.
  [[nodiscard]] int nvlinks(Handle gpu) const;

 private:
  struct Functions;
  struct Events;

  void count_xids();

  std::string why_not_;
  std::unique_ptr<Functions> call_;
  std::unique_ptr<Events> events_;
};

}  // namespace anabranch
