#include "core/base/host_name.h"

#include <array>
#include <unistd.h>

namespace anabranch {

std::string host_name() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return "localhost";
  return name.data();
}

}  // namespace anabranch
