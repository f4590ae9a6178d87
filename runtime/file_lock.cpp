#include "runtime/file_lock.h"

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sys/file.h>
#include <thread>
#include <unistd.h>

#include "core/base/error.h"
#include "core/base/host_name.h"

namespace anabranch {

std::optional<FileLock> FileLock::take(const std::filesystem::path& file, double patience) {
  const int fd = open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) throw io_error("cannot open the lock ", file.string(), ": ", std::strerror(errno));
  FileLock lock(fd);
  constexpr std::chrono::milliseconds kPause{20};
  for (auto left = std::chrono::duration<double>(patience);; left -= kPause) {
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) return lock;
    if (errno != EWOULDBLOCK) {
      throw io_error("cannot lock ", file.string(), ": ", std::strerror(errno),
                     ". The file system of run.dir must support flock.");
    }
    if (left.count() <= 0) return {};
    std::this_thread::sleep_for(kPause);
  }
}

bool FileLock::is_held(const std::filesystem::path& file) {
  const int fd = open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool held = flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  close(fd);
  return held;
}

FileLock::~FileLock() {
  if (descriptor_ >= 0) close(descriptor_);
}

void FileLock::write(const std::string& line) const {
  if (ftruncate(descriptor_, 0) != 0 ||
      pwrite(descriptor_, line.data(), line.size(), 0) != static_cast<ssize_t>(line.size())) {
    throw io_error("cannot write a lock: ", std::strerror(errno));
  }
}

void FileLock::let_children_inherit() const { fcntl(descriptor_, F_SETFD, 0); }

std::string lock_holder(const std::filesystem::path& file) {
  std::string text(255, '\0');
  const int fd = open(file.c_str(), O_RDONLY | O_CLOEXEC);
  const ssize_t got = fd < 0 ? 0 : pread(fd, text.data(), text.size(), 0);
  if (fd >= 0) close(fd);
  text.resize(static_cast<size_t>(got > 0 ? got : 0));
  return text;
}

std::string holder_line() {
  const char* job = std::getenv("SLURM_JOB_ID");
  return join("host ", host_name(), " process ", getpid(), " job ", job != nullptr ? job : "none");
}

}  // namespace anabranch
