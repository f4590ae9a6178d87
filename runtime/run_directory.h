// A run's folder: its configuration, logs, metrics, checkpoints, and the lock that makes it one
// job's alone.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "runtime/file_lock.h"
#include "runtime/stop_request.h"

namespace anabranch {

class RunDirectory {
 public:
  // Creates what is missing. The rank that calls with `lock` holds the directory until this object
  // or the process ends, however it ends. Throws Error (I/O, 74) if the directory cannot be
  // written, or if another job holds it, naming that job's host, process and SLURM id.
  RunDirectory(const std::filesystem::path& path, bool lock);
  RunDirectory(const RunDirectory&) = delete;
  RunDirectory& operator=(const RunDirectory&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

  [[nodiscard]] std::filesystem::path checkpoints() const { return path_ / "checkpoints"; }

  [[nodiscard]] std::filesystem::path log(int rank) const;

  [[nodiscard]] std::filesystem::path metrics() const { return path_ / "metrics.jsonl"; }

  // The directory of the sweep that the run is one of: the one above, if a sweep's record lies
  // there; else empty.
  [[nodiscard]] std::filesystem::path sweep() const;

  // Where Prometheus looks for this run: targets/RUN.json beside the run directory, or beside that
  // of its sweep targets/SWEEP.RUN.json. It can look into one folder only, not into each run's.
  [[nodiscard]] std::filesystem::path discovery() const;

  // Whether a file named `stop` or `save` lies in the directory; it is removed when seen.
  [[nodiscard]] StopKind take_trigger() const;

  // Writes a small file by a temporary name and rename, so a reader sees all of it or nothing.
  void write(const std::string& name, const std::string& text) const;

 private:
  std::filesystem::path path_;
  std::optional<FileLock> lock_;
};

// Removes `targets.json`, and what Prometheus finds it by, of the run directories in `folder` that
// no job holds: a job that was killed could not. Returns how many. Those that cannot be looked at
// or removed stay.
int reap_stale_targets(const std::filesystem::path& folder);

}  // namespace anabranch
