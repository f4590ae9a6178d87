#include "core/base/read_file.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

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
  // Not by an iterator of the buffer, which throws an exception of its own where reading fails.
  std::string bytes;
  std::array<char, 1 << 16> block{};
  while (in.read(block.data(), block.size()), in.gcount() > 0) {
    bytes.append(block.data(), static_cast<size_t>(in.gcount()));
  }
  if (in.bad()) throw io_error("cannot read ", path, ": ", std::strerror(errno));
  return bytes;
}

}  // namespace anabranch
