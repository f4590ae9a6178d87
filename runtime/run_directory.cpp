#include "runtime/run_directory.h"

#include <cerrno>
#include <cstring>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "core/base/error.h"
#include "data/hdf5/raw_file.h"

namespace anabranch {
namespace fs = std::filesystem;

namespace {

// From the root, without a slash at its end.
fs::path whole_path(const fs::path& path) {
  std::error_code ignored;
  const fs::path whole = fs::absolute(path, ignored).lexically_normal();
  return whole.has_filename() ? whole : whole.parent_path();
}

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
                   lock_holder(file),
                   "). Wait for it, stop it, or set run.dir to another folder.");
  }
  lock->write(holder_line());
  return std::move(*lock);
}

}  // namespace

RunDirectory::RunDirectory(const fs::path& path, bool lock) : path_(path) {
  for (const fs::path& part : {path_, path_ / "log", checkpoints()}) create(part);
  if (lock) lock_.emplace(take_lock(path_ / "lock"));
}

fs::path RunDirectory::log(int rank) const {
  std::string name = std::to_string(rank);
  name.insert(0, name.size() < 4 ? 4 - name.size() : 0, '0');
  return path_ / "log" / ("rank-" + name + ".log");
}

fs::path RunDirectory::sweep() const {
  fs::path above = whole_path(path_).parent_path();
  std::error_code ignored;
  if (!fs::exists(above / "sweep.json", ignored)) above.clear();
  return above;
}

fs::path RunDirectory::discovery() const {
  const fs::path own = whole_path(path_), of = sweep();
  const std::string file = own.filename().string() + ".json";
  return of.empty() ? own.parent_path() / "targets" / file
                    : of.parent_path() / "targets" / join(of.filename().string(), ".", file);
}

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

}  // namespace anabranch
