// safetensors, the format in which models change hands: a length, a JSON header, raw tensors.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "runtime/checkpoint/state.h"

namespace anabranch {

// Writes tensors in the order given, by a temporary name and rename. float32, float64, bfloat16.
// Throws Error (I/O, 74).
//
//   metadata  strings under "__metadata__"
void write_safetensors(const std::string& path, const std::vector<StateItem>& tensors,
                       const std::map<std::string, std::string>& metadata);

}  // namespace anabranch
