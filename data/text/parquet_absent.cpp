#include "core/base/error.h"
#include "data/text/sources.h"

namespace anabranch {

bool has_parquet() { return false; }

std::unique_ptr<DocumentSource> open_parquet(const std::string& path,
                                             const TextFormat& /*format*/) {
  throw data_error(path, " is a Parquet file, and this build has no Parquet reader: run ",
                   "`launch/install.sh parquet` (or install Arrow C++) and build again; or ",
                   "convert the file to JSON lines");
}

}  // namespace anabranch
