// Whole small files.
#pragma once

#include <string>

namespace anabranch {

// The bytes of a file. Throws Error: data (65) if there is no such file or it is a folder, I/O (74)
// if it cannot be read.
std::string read_file(const std::string& path);

}  // namespace anabranch
