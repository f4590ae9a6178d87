// Whole small files, read and written.
#pragma once

#include <string>
#include <string_view>

namespace anabranch {

// The bytes of a file. Throws io_error.
std::string read_tokenizer_file(const std::string& path);

// Writes a file through a temporary one beside it, fsync and rename: it appears whole or not at
// all. Throws io_error.
void write_tokenizer_file(const std::string& path, std::string_view bytes);

}  // namespace anabranch
