#include "runtime/run_directory.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sys/file.h>
#include <system_error>
#include <unistd.h>

#include "core/base/error.h"
#include "core/base/host_name.h"
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

std::string job_line() {
  const char* job = std::getenv("SLURM_JOB_ID");
  return join("host ", host_name(), " process ", getpid(), " job ", job != nullptr ? job : "none");
}

int take_lock(const fs::path& file) {
  const int fd = open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) throw io_error("cannot open the lock ", file.string(), ": ", std::strerror(errno));
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) {
      const int reason = errno;
      close(fd);
      throw io_error("cannot lock ", file.string(), ": ", std::strerror(reason),
                     ". The file system of run.dir must support flock.");
    }
    std::string holder(256, '\0');
    const ssize_t got = pread(fd, holder.data(), holder.size(), 0);
    holder.resize(static_cast<size_t>(got > 0 ? got : 0));
    close(fd);
    throw io_error("run directory ", file.parent_path().string(), " is held by another job (",
                   holder, "). Wait for it, stop it, or set run.dir to another folder.");
  }
  const std::string line = job_line();
  if (ftruncate(fd, 0) != 0 ||
      pwrite(fd, line.data(), line.size(), 0) != static_cast<ssize_t>(line.size())) {
    const int reason = errno;
    close(fd);
    throw io_error("cannot write the lock ", file.string(), ": ", std::strerror(reason));
  }
  return fd;
}

}  // namespace

RunDirectory::RunDirectory(const fs::path& path, bool lock) : path_(path) {
  for (const fs::path& part : {path_, path_ / "log", checkpoints()}) create(part);
  if (lock) lock_ = take_lock(path_ / "lock");
}

RunDirectory::~RunDirectory() {
  if (lock_ >= 0) close(lock_);  // the lock ends with its descriptor
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
