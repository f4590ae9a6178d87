// Any bytes as a configuration: one that survives being written and read again, or config_error.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "core/base/error.h"
#include "runtime/config/config.h"
#include "runtime/config/validate.h"

namespace {

using anabranch::Config;
using anabranch::Error;
using anabranch::Fault;

void check(const std::string& text) {
  const Config config = anabranch::parse_config(text, "fuzz.yaml");
  if (!(anabranch::parse_config(anabranch::dump_config(config), "dump.yaml") == config)) {
    std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    check(std::string(data, data + size));
  } catch (const Error& error) {
    if (error.fault() != Fault::kConfig) std::abort();
  }
  return 0;
}
