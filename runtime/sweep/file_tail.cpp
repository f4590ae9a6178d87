#include "runtime/sweep/file_tail.h"

#include <algorithm>
#include <fstream>
#include <sstream>

namespace anabranch {

std::vector<std::string> tail_lines(const std::string& path, int64_t bytes) {
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  if (!in) return {};
  const auto size = static_cast<int64_t>(in.tellg());
  const int64_t begin = std::max<int64_t>(0, size - bytes);
  // One byte more tells whether a line begins there.
  in.seekg(std::max<int64_t>(0, begin - 1));
  std::string line;
  if (begin > 0) std::getline(in, line);
  std::vector<std::string> lines;
  while (std::getline(in, line) && !in.eof()) lines.push_back(line);
  return lines;
}

}  // namespace anabranch
