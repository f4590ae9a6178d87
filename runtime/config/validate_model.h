// The rules that tie keys of one family together.
#pragma once

#include <string>
#include <vector>

#include "runtime/config/config.h"

namespace anabranch {

// The broken rules of families with a GPT-2 backbone, a line each, with their numbers.
std::vector<std::string> check_streams(const ModelConfig& model);

// Of kappa_moe.
std::vector<std::string> check_kappa(const Config& config);

}  // namespace anabranch
