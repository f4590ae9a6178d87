#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "launch/cuda_part.h"
#include "launch/program.h"
#include "launch/progress.h"
#include "launch/rank_process.h"
#include "monitoring/nvml.h"
#include "monitoring/server.h"
#include "parallel/topology.h"
#include "runtime/config/config.h"
#include "runtime/config/number.h"

namespace anabranch {

namespace {

struct Finding {
  std::string name;
  bool good;
  std::string what;
};

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

// Writes, syncs and removes a small file.
Finding storage(const std::string& folder) {
  std::error_code failure;
  const auto space = std::filesystem::space(folder, failure);
  if (failure) return {"storage", false, folder + ": " + failure.message()};
  const std::string path = join(folder, "/.doctor-", getpid());
  std::ofstream out(path);
  out << "x" << std::flush;
  const bool good = out.good();
  out.close();
  std::filesystem::remove(path, failure);
  return {"storage", good,
          join(folder, ": ", bytes_text(static_cast<double>(space.available)), " free, ",
               good ? "writable" : "not writable")};
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
  const Metrics metrics(Labels{});
  std::string warning;
  const MetricsServer server(metrics, listen, [&](const std::string& text) { warning = text; });
  // A run goes on without it.
  return {"metrics port", true, server.serving() ? listen + " is free" : warning};
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
std::vector<Finding> gpus() {
  const GpuSight sight = see_gpus_or_why();
  if (sight.gpus.empty()) return {{"gpus", true, "none: " + sight.why_none}};
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

Finding ranks() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "SLURM_NTASKS"}) {
    if (const char* value = std::getenv(name)) {
      return {"ranks", true, std::string(name) + "=" + value};
    }
  }
  return {"ranks", true, "one; start under mpirun or srun for more"};
}

void print(const std::vector<Finding>& findings, bool json) {
  if (json) {
    nlohmann::ordered_json document = nlohmann::ordered_json::object();
    for (const Finding& finding : findings) {
      document[finding.name] = {{"good", finding.good}, {"what", finding.what}};
    }
    std::cout << document.dump(2) << "\n";
    return;
  }
  for (const Finding& finding : findings) {
    std::cout << (finding.good ? "  ok    " : "  BAD   ") << finding.name << ": " << finding.what
              << "\n";
  }
}

int examine(const std::string& folder, bool json) {
  std::vector<Finding> findings;
  for (const std::string& line : build_lines()) findings.push_back({"build", true, line});
  for (const Finding& finding : gpus()) findings.push_back(finding);
  findings.insert(findings.end(),
                  {processors(), memory(), storage(folder), shared_memory(), port(), ranks()});
  print(findings, json);
  const bool good = std::ranges::all_of(findings, &Finding::good);
  return good ? 0 : static_cast<int>(Fault::kIo);
}

}  // namespace

void add_doctor(CLI::App& app, int& exit_code) {
  auto json = std::make_shared<bool>(false);
  auto folder = std::make_shared<std::string>(".");
  CLI::App* verb =
      app.add_subcommand("doctor", "checks this machine: GPUs, cores, memory, disk, ports");
  verb->add_flag("--json", *json, "machine-readable");
  verb->add_option("--dir", *folder, "folder that runs are to be written to");
  verb->callback(
      [json, folder, &exit_code] { run_alone([&] { exit_code = examine(*folder, *json); }); });
}

}  // namespace anabranch
