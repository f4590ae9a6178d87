#include "data/tokenizer/tokenizer_files.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>

#include "core/base/error.h"

namespace anabranch {
namespace {

std::string reason() { return std::strerror(errno); }

// Writes everything and waits until it is on the disk; false with errno set if that fails.
bool write_all(int file, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(file, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  return ::fsync(file) == 0;
}

}  // namespace

void write_tokenizer_file(const std::string& path, std::string_view bytes) {
  const std::string temporary = path + ".tmp-" + std::to_string(::getpid());
  const int file = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file < 0) throw io_error("cannot create ", temporary, ": ", reason());
  const bool written = write_all(file, bytes);
  const std::string failure = written ? "" : reason();
  const bool closed = ::close(file) == 0;
  if (written && closed && std::rename(temporary.c_str(), path.c_str()) == 0) return;
  const std::string why = written ? reason() : failure;
  std::remove(temporary.c_str());
  throw io_error("cannot write ", path, ": ", why);
}

}  // namespace anabranch
