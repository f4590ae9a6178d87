#include "data/hdf5/raw_file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "core/base/error.h"

namespace anabranch {
namespace {

std::string reason(int code) {
  std::string text = std::strerror(code);
  if (code == ENOSPC) text += " (the disk is full)";
  if (code == EFBIG) text += " (a limit on the size of files, see ulimit -f)";
  return text;
}

}  // namespace

InputFile::InputFile(std::string path) : path_(std::move(path)) {
  descriptor_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor_ < 0) {
    const int code = errno;
    if (code == ENOENT || code == ENOTDIR) throw data_error(path_, ": no such file");
    throw io_error("cannot open ", path_, ": ", reason(code));
  }

  struct stat facts {};

  const bool known = ::fstat(descriptor_, &facts) == 0;
  const int code = errno;
  if (known && S_ISREG(facts.st_mode)) {
    size_ = facts.st_size;
    return;
  }
  ::close(descriptor_);
  if (!known) throw io_error("cannot look at ", path_, ": ", reason(code));
  throw data_error(path_, " is a folder or a device; expected a file");
}

InputFile::~InputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

InputFile::InputFile(InputFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      size_(other.size_) {}

InputFile& InputFile::operator=(InputFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(size_, other.size_);
  return *this;
}

void InputFile::read(int64_t offset, void* to, size_t bytes) const {
  auto* at = static_cast<char*>(to);
  while (bytes > 0) {
    const ssize_t n = ::pread(descriptor_, at, bytes, offset);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw io_error("cannot read ", path_, " at byte ", offset, ": ", reason(errno));
    if (n == 0) {
      throw data_error(path_, " ends at byte ", offset, ", ", bytes,
                       " bytes short: it is truncated; copy or build it again");
    }
    at += n;
    offset += n;
    bytes -= static_cast<size_t>(n);
  }
}

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)), temporary_(path_ + ".tmp") {
  struct stat there {};

  if (::stat(path_.c_str(), &there) == 0 && !S_ISREG(there.st_mode)) {
    throw io_error(path_, " is there and is no regular file; it is not replaced");
  }
  descriptor_ = ::open(temporary_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor_ < 0) throw io_error("cannot create ", temporary_, ": ", reason(errno));
}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!committed_) ::unlink(temporary_.c_str());
}

void AtomicFile::reserve(int64_t bytes) {
  if (bytes <= 0) return;
  int code = EINTR;
  while (code == EINTR) code = ::posix_fallocate(descriptor_, 0, bytes);
  if (code != 0) {
    throw io_error("cannot reserve ", bytes, " bytes for ", path_, ": ", reason(code));
  }
}

void AtomicFile::resize(int64_t bytes) {
  if (::ftruncate(descriptor_, bytes) == 0) return;
  throw io_error("cannot give ", path_, " a size of ", bytes, " bytes: ", reason(errno));
}

void AtomicFile::write(int64_t offset, const void* from, size_t bytes) {
  const auto* at = static_cast<const char*>(from);
  while (bytes > 0) {
    const ssize_t n = ::pwrite(descriptor_, at, bytes, offset);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      throw io_error("cannot write ", path_, " at byte ", offset, ": ",
                     reason(n < 0 ? errno : ENOSPC));
    }
    at += n;
    offset += n;
    bytes -= static_cast<size_t>(n);
  }
}

void AtomicFile::commit() {
  AB_CHECK(!committed_, path_, " is already committed");
  if (::fsync(descriptor_) != 0) throw io_error("cannot write ", path_, ": ", reason(errno));
  const bool closed = ::close(std::exchange(descriptor_, -1)) == 0;
  if (!closed) throw io_error("cannot close ", path_, ": ", reason(errno));
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) {
    throw io_error("cannot rename ", temporary_, " to ", path_, ": ", reason(errno));
  }
  committed_ = true;
  sync_folder(std::filesystem::path(path_).parent_path().string());
}

void write_atomically(const std::string& path, std::string_view bytes) {
  AtomicFile file(path);
  file.write(0, bytes.data(), bytes.size());
  file.commit();
}

void sync_folder(const std::string& path) {
  const std::string folder = path.empty() ? "." : path;
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) throw io_error("cannot open the folder ", folder, ": ", reason(errno));
  const int code = ::fsync(descriptor) == 0 ? 0 : errno;
  ::close(descriptor);
  // Some network file systems do not know fsync of a folder.
  if (code != 0 && code != EINVAL) throw io_error("cannot sync ", folder, ": ", reason(code));
}

}  // namespace anabranch
