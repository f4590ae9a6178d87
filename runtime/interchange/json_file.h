// The small JSON files beside a model's weights.
#pragma once

#include <string>

namespace anabranch {

// The text of a file that holds a JSON object. Throws Error (data, 65) if it does not, or is too
// long to be one of these.
std::string read_json_object(const std::string& path);

}  // namespace anabranch
