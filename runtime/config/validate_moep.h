// The rules of the keys of moep_msit.
#pragma once

#include <string>
#include <vector>

#include "runtime/config/model_config.h"

namespace anabranch {

// One line for every broken rule, with its numbers.
std::vector<std::string> check_moep(const ModelConfig& model);

}  // namespace anabranch
