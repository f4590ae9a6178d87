// What train.deterministic layout asks of a run.
#pragma once

#include <string>
#include <vector>

#include "runtime/config/config.h"

namespace anabranch {

// Whether a run is to be the same bit by bit whatever the ranks.
[[nodiscard]] bool is_of_any_layout(const Config& config);

// The broken rules of such a run, a line each; none of another.
std::vector<std::string> check_any_layout(const Config& config);

// Throws Error (config) if such a run cannot have so many ranks.
void check_any_layout_ranks(const Config& config, int ranks);

}  // namespace anabranch
