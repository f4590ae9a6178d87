// The readers behind open_documents.
#pragma once

#include <memory>
#include <string>

#include "data/text/documents.h"

namespace anabranch {

std::unique_ptr<DocumentSource> open_plain_text(const std::string& path, const TextFormat& format);
std::unique_ptr<DocumentSource> open_json_lines(const std::string& path, const TextFormat& format);
std::unique_ptr<DocumentSource> open_parquet(const std::string& path, const TextFormat& format);

// True if this build reads Parquet.
[[nodiscard]] bool has_parquet();

}  // namespace anabranch
