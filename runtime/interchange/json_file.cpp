#include "runtime/interchange/json_file.h"

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "data/hdf5/raw_file.h"

namespace anabranch {
namespace {

constexpr int64_t kLongest = int64_t{64} << 20;

}  // namespace

std::string read_json_object(const std::string& path) {
  const InputFile file(path);
  if (file.size() > kLongest) {
    throw data_error(path, " is of ", file.size(), " bytes; expected at most ", kLongest);
  }
  std::string text(static_cast<size_t>(file.size()), '\0');
  file.read(0, text.data(), text.size());
  if (!nlohmann::json::parse(text, nullptr, false).is_object()) {
    throw data_error(path, " is no JSON object");
  }
  return text;
}

}  // namespace anabranch
