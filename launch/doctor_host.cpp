// What one machine has and can do.
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sys/statvfs.h>
#include <unistd.h>

#include "core/base/error.h"
#include "core/base/host_name.h"
#include "core/base/read_file.h"
#include "data/hdf5/raw_file.h"
#include "launch/cuda_part.h"
#include "launch/doctor.h"
#include "launch/progress.h"
#include "monitoring/http_server.h"
#include "monitoring/nvml.h"
#include "parallel/topology.h"
#include "runtime/config/config.h"
#include "runtime/config/number.h"

namespace anabranch {

namespace {

// The number behind a line of /proc/meminfo or the like, or "unknown".
std::string proc_value(const char* file, const std::string& key) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(key)) continue;
    const size_t begin = line.find_first_not_of(" \t:", key.size());
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "unknown";
}

Finding processors() {
  const size_t usable = allowed_cores().size();
  return {"processor", usable > 0,
          join(proc_value("/proc/cpuinfo", "model name"), ", ", usable, " cores usable")};
}

Finding memory() {
  const std::string free = proc_value("/proc/meminfo", "MemAvailable");
  const double bytes = std::strtod(free.c_str(), nullptr) * 1024;
  constexpr double kSmall = 1024.0 * 1024 * 1024;
  return {"memory", bytes >= kSmall,
          join(bytes_text(bytes), " free", bytes < kSmall ? ", want at least 1 GiB" : "")};
}

// Room for bytes and for files: a file system may have none left of either.
std::string room(const std::string& folder, bool& enough) {
  constexpr double kFewBytes = 64.0 * 1024 * 1024;
  constexpr fsfilcnt_t kFewFiles = 1000;

  struct statvfs space {};

  if (statvfs(folder.c_str(), &space) != 0) throw io_error(folder, ": ", std::strerror(errno));
  const double bytes = static_cast<double>(space.f_bavail) * static_cast<double>(space.f_frsize);
  const bool counts_files = space.f_files > 0;
  enough = bytes >= kFewBytes && (!counts_files || space.f_favail >= kFewFiles);
  std::string text = bytes_text(bytes) + " free";
  if (counts_files) text += join(", ", space.f_favail, " inodes");
  if (!enough) text += join(", want at least 64 MiB and ", kFewFiles, " inodes");
  return text;
}

// Does what a checkpoint does: writes, syncs and renames, reads it again, and removes it.
Finding storage(const std::string& folder) {
  const std::string path = join(folder, "/.doctor-", host_name(), "-", getpid());
  bool enough = false;
  try {
    const std::string space = room(folder, enough);
    const std::string text(1 << 16, 'x');
    write_atomically(path, text);
    if (read_file(path) != text) throw io_error(path, " reads back other than it was written");
    std::filesystem::remove(path);
    return {"storage", enough, join(folder, ": ", space, ", writes, syncs, renames and reads")};
  } catch (const std::exception& failure) {
    std::error_code ignored;
    std::filesystem::remove(path, ignored);
    return {"storage", false, join(folder, ": ", failure.what())};
  }
}

Finding shared_memory() {
  std::error_code failure;
  const auto space = std::filesystem::space("/dev/shm", failure);
  constexpr double kSmall = 64.0 * 1024 * 1024;
  const double bytes = failure ? 0 : static_cast<double>(space.available);
  return {"shared memory", bytes >= kSmall,
          bytes_text(bytes) + " free in /dev/shm, for ranks on one machine"};
}

Finding port() {
  const std::string listen = MetricsConfig().listen;
  try {
    const HttpServer server(listen, [](const std::string&) { return std::nullopt; });
    return {"metrics port", true, listen + " is free"};
  } catch (const std::exception& failure) {  // a run goes on without it
    return {"metrics port", true, join(listen, " cannot be served (", failure.what(), ")")};
  }
}

// "13.0" of CUDA's 13000.
std::string version_text(int version) {
  if (version == 0) return "unknown";
  return join(version / 1000, ".", version % 1000 / 10);
}

std::string nvlink_text(Nvml& nvml, const Gpu& gpu) {
  if (!nvml.why_not().empty()) return "NVLink unknown: " + nvml.why_not();
  const int links = nvml.nvlinks(nvml.find(gpu.pci));
  if (links < 0) return "NVLink unknown";
  return links > 0 ? "NVLink yes, " + counted(links, "link") : "NVLink no";
}

// The GPUs, or why there are none.
std::vector<Finding> gpus(bool wanted) {
  const GpuSight sight = see_gpus_or_why();
  if (sight.gpus.empty()) return {{"gpus", !wanted, "none: " + sight.why_none, Fault::kConfig}};
  Nvml nvml;
  const std::string driver = nvml.driver_version();
  std::vector<Finding> findings{
      {"gpus", true,
       join(sight.gpus.size(), " seen; driver ", driver.empty() ? "of unknown version" : driver,
            " for CUDA ", version_text(sight.driver), ", runtime ", version_text(sight.runtime))}};
  for (size_t i = 0; i < sight.gpus.size(); ++i) {
    const Gpu& gpu = sight.gpus[i];
    findings.push_back({join("gpu ", i), true,
                        join(gpu.name, ", ", bytes_text(static_cast<double>(gpu.memory)),
                             ", compute capability ", gpu.major, ".", gpu.minor, ", ",
                             nvlink_text(nvml, gpu), ", at ", gpu.pci, ", ", gpu.id)});
  }
  return findings;
}

}  // namespace

std::string nearest_folder(const std::string& folder) {
  std::error_code ignored;
  std::filesystem::path nearest = std::filesystem::absolute(folder, ignored);
  while (nearest.has_relative_path() && !std::filesystem::exists(nearest, ignored)) {
    nearest = nearest.parent_path();
  }
  return nearest.string();
}

std::vector<Finding> examine_host(const std::string& folder, bool wants_gpu) {
  std::vector<Finding> findings = gpus(wants_gpu);
  findings.insert(findings.end(),
                  {processors(), memory(), storage(folder), shared_memory(), port()});
  return findings;
}

}  // namespace anabranch
