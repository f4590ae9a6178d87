// Any bytes as a checkpoint's manifest and as its list of entries: one that survives being written
// and read again, or data_error.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "core/base/error.h"
#include "runtime/checkpoint/manifest.h"

namespace {

using anabranch::Error;
using anabranch::Fault;
using anabranch::Manifest;

template <class F>
void expect_data_error(F&& parse) {
  try {
    parse();
  } catch (const Error& error) {
    if (error.fault() != Fault::kData) std::abort();
  }
}

void check_again(const Manifest& manifest) {
  const std::string json = manifest.json();
  if (Manifest::parse(json, "again").json() != json) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(data, data + size);
  expect_data_error([&] { check_again(Manifest::parse(text, "fuzz")); });
  // A manifest's checksum stops nearly all inputs; a list of entries has none.
  expect_data_error([&] {
    Manifest manifest;
    manifest.entries = anabranch::parse_entries(text, "fuzz");
    manifest.check_coverage();
    check_again(manifest);
  });
  return 0;
}
