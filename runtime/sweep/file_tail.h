// The last lines of a file that may be long.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace anabranch {

// The whole lines among the last `bytes` bytes; none if there is no such file. A line that is still
// being written, without its line feed, is left out.
std::vector<std::string> tail_lines(const std::string& path, int64_t bytes);

}  // namespace anabranch
