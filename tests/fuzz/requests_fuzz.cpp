// Requests of any bytes: what they ask or an Error, nothing else.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <unistd.h>

#include "core/base/error.h"
#include "runtime/evaluation/requests.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string path =
      (std::filesystem::temp_directory_path() / anabranch::join("fuzz-", ::getpid(), ".requests"))
          .string();
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  try {
    for (const auto& request : anabranch::read_requests(path)) {
      if (request.id.empty() || request.max_tokens < 0) __builtin_trap();
    }
  } catch (const anabranch::Error& error) {
    if (error.fault() != anabranch::Fault::kData) throw;
  }
  std::filesystem::remove(path);
  return 0;
}
