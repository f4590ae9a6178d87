#include "core/base/read_file.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "core/base/error.h"

namespace anabranch {

std::string read_file(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    throw data_error(path, " is a folder; expected a file");
  }
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    const int reason = errno;
    if (reason == ENOENT || reason == ENOTDIR) throw data_error(path, ": no such file");
    throw io_error("cannot open ", path, ": ", std::strerror(reason));
  }
  std::string bytes{std::istreambuf_iterator<char>(in), {}};
  if (in.bad()) throw io_error("cannot read ", path, ": ", std::strerror(errno));
  return bytes;
}

}  // namespace anabranch
