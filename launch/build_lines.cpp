#include "core/base/build.h"
#include "core/base/error.h"
#include "launch/program.h"

namespace anabranch {

std::vector<std::string> build_lines() {
  return {join("anabranch ", AB_VERSION, ", git ", git_hash()),
          join("built by g++ ", __VERSION__, ", ", AB_BUILD_TYPE,
               build::kCuda ? ", with CUDA" : ", for the processor",
               build::kSanitized ? ", sanitized" : "")};
}

}  // namespace anabranch
