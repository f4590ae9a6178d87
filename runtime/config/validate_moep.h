// The rules of the keys of moep_msit.
#pragma once

#include <string>
#include <vector>

#include "runtime/config/config.h"

namespace anabranch {

// One line for every broken rule, with its numbers.
std::vector<std::string> check_moep(const ModelConfig& model);

// The same of runs whose experts attend over pools: those must be on one rank.
std::vector<std::string> check_segments(const Config& config);

// The same of runs with masked steps; none of others.
std::vector<std::string> check_masking(const Config& config);

}  // namespace anabranch
