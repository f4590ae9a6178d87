// Small files, written whole.
#pragma once

#include <string>
#include <string_view>

namespace anabranch {

// Writes a file through a temporary one beside it, fsync and rename: it appears whole or not at
// all. Throws io_error.
void write_tokenizer_file(const std::string& path, std::string_view bytes);

}  // namespace anabranch
