// The rules that tie keys of one family together.
#pragma once

#include <string>
#include <vector>

#include "runtime/config/config.h"

namespace anabranch {

// The broken rules of the configured family, a line each, with their numbers.
std::vector<std::string> check_family(const Config& config);

}  // namespace anabranch
