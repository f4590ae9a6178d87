#include "runtime/run_directory.h"

#include <cerrno>
#include <cstring>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "core/base/error.h"
#include "data/hdf5/raw_file.h"
#include "monitoring/targets_file.h"

namespace anabranch {
namespace fs = std::filesystem;

namespace {

// From the root, without a slash at its end.
fs::path whole_path(const fs::path& path) {
  std::error_code ignored;
  const fs::path whole = fs::absolute(path, ignored).lexically_normal();
  return whole.has_filename() ? whole : whole.parent_path();
}

constexpr const char* kLock = "lock";

void create(const fs::path& path) {
  std::error_code failure;
  fs::create_directories(path, failure);
  if (failure || access(path.c_str(), W_OK) != 0) {
    throw io_error("cannot write to ", path.string(), ": ",
                   failure ? failure.message() : std::strerror(errno),
                   ". Set run.dir to a folder that this job may write.");
  }
}

FileLock take_lock(const fs::path& file) {
  std::optional<FileLock> lock = FileLock::take(file);
  if (!lock) {
    throw io_error("run directory ", file.parent_path().string(), " is held by another job (",
                   lock_holder(file), "). Wait for it, stop it, or set run.dir to another folder.");
  }
  lock->write(holder_line());
  return std::move(*lock);
}

fs::path sweep_of(const fs::path& run) {
  fs::path above = whole_path(run).parent_path();
  std::error_code ignored;
  if (!fs::exists(above / "sweep.json", ignored)) above.clear();
  return above;
}

fs::path discovery_of(const fs::path& run) {
  const fs::path own = whole_path(run), of = sweep_of(run);
  const std::string file = own.filename().string() + ".json";
  return of.empty() ? own.parent_path() / "targets" / file
                    : of.parent_path() / "targets" / join(of.filename().string(), ".", file);
}

// Removes what a job that was killed could not; whether it did.
bool reap(const fs::path& run) {
  std::error_code ignored;
  const fs::path targets = run / TargetsFile::kName;
  if (!fs::exists(targets, ignored) || !fs::exists(run / kLock, ignored)) return false;
  // Removed under the lock: whoever starts the run meanwhile writes its own files afterwards.
  const std::optional<FileLock> lock = FileLock::take(run / kLock, 0);
  if (!lock) return false;
  fs::remove(discovery_of(run), ignored);
  return fs::remove(targets, ignored);
}

}  // namespace

RunDirectory::RunDirectory(const fs::path& path, bool lock) : path_(path) {
  for (const fs::path& part : {path_, path_ / "log", checkpoints()}) create(part);
  if (lock) lock_.emplace(take_lock(path_ / kLock));
}

fs::path RunDirectory::log(int rank) const {
  std::string name = std::to_string(rank);
  name.insert(0, name.size() < 4 ? 4 - name.size() : 0, '0');
  return path_ / "log" / ("rank-" + name + ".log");
}

fs::path RunDirectory::sweep() const { return sweep_of(path_); }

fs::path RunDirectory::discovery() const { return discovery_of(path_); }

StopKind RunDirectory::take_trigger() const {
  std::error_code ignored;
  // Both are taken: a stop saves too, and a `save` left over would reach the next job.
  const bool stop = fs::remove(path_ / "stop", ignored);
  const bool save = fs::remove(path_ / "save", ignored);
  if (stop) return StopKind::kInterrupt;
  return save ? StopKind::kSave : StopKind::kNone;
}

void RunDirectory::write(const std::string& name, const std::string& text) const {
  write_atomically((path_ / name).string(), text);
}

int reap_stale_targets(const fs::path& folder) {
  int reaped = 0;
  std::error_code failure;
  for (fs::directory_iterator run(folder, failure), end; !failure && run != end;
       run.increment(failure)) {
    try {
      reaped += reap(run->path()) ? 1 : 0;
    } catch (const Error&) {  // cannot be looked at
    }
  }
  return reaped;
}

}  // namespace anabranch
