#include "core/base/error.h"

#include <cstring>

namespace anabranch {

Error internal_error(const char* file, int line, const std::string& what) {
  const char* slash = std::strrchr(file, '/');
  return {Fault::kInternal, join(slash != nullptr ? slash + 1 : file, ":", line, ": ", what)};
}

}  // namespace anabranch
