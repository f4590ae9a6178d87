#include "launch/launch_scripts.h"

#include <cstdlib>

#include "core/base/error.h"

namespace anabranch {

namespace fs = std::filesystem;

namespace {

fs::path own_program() { return fs::read_symlink("/proc/self/exe"); }

}  // namespace

std::string program_for_scripts() {
  const char* set = std::getenv("AB_PROGRAM");
  return set != nullptr ? set : own_program().string();
}

fs::path launch_folder() {
  const auto is_one = [](const fs::path& folder) { return fs::exists(folder / "lifecycle.sh"); };
  if (const char* home = std::getenv("AB_HOME"); home != nullptr) {
    if (is_one(fs::path(home) / "launch")) return fs::path(home) / "launch";
    throw usage_error("AB_HOME is ", home, ", which has no launch/lifecycle.sh");
  }
  for (fs::path at = own_program().parent_path(); at.has_relative_path(); at = at.parent_path()) {
    if (is_one(at / "launch")) return at / "launch";
  }
  throw usage_error("no launch/lifecycle.sh above ", own_program().string(),
                    ": set AB_HOME to the tree that has it");
}

}  // namespace anabranch
