// The file by which Prometheus finds a run.
#pragma once

#include <functional>
#include <string>

#include "monitoring/metrics.h"

namespace anabranch {

// A file for Prometheus' file_sd_configs, there as long as the object lives.
class TargetsFile {
 public:
  // Writes [{"targets": [address], "labels": {...}}] to `path` by a temporary file and a rename.
  //
  //   warn  called with the reason if it cannot be written
  TargetsFile(std::string path, const std::string& address, const Labels& labels,
              const std::function<void(const std::string&)>& warn);
  ~TargetsFile();
  TargetsFile(const TargetsFile&) = delete;
  TargetsFile& operator=(const TargetsFile&) = delete;

  // Its name in a run directory.
  static constexpr const char* kName = "targets.json";

 private:
  std::string path_;
};

}  // namespace anabranch
