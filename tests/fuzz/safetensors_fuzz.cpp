// Any bytes as a safetensors file: tensors that fill its data and are read, or data_error.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <unistd.h>

#include "core/base/error.h"
#include "runtime/interchange/safetensors.h"

namespace {

using anabranch::DType;
using anabranch::Error;
using anabranch::Fault;
using anabranch::SafetensorsEntry;
using anabranch::SafetensorsReader;
using anabranch::Tensor;

void read_all(const SafetensorsReader& reader) {
  int64_t end = 0;
  for (const SafetensorsEntry& entry : reader.entries()) {
    if (entry.offset != end || entry.bytes < 0) std::abort();
    end += entry.bytes;
    Tensor value(entry.shape, DType::kF32);
    try {
      reader.read(entry, value);
    } catch (const Error& error) {
      if (error.fault() != Fault::kData) std::abort();
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::string kPath =
      (std::filesystem::temp_directory_path() / anabranch::join("fuzz-", ::getpid(), ".st"))
          .string();
  std::ofstream(kPath, std::ios::binary)
      .write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  try {
    read_all(SafetensorsReader(kPath));
  } catch (const Error& error) {
    if (error.fault() != Fault::kData) std::abort();
  }
  std::filesystem::remove(kPath);
  return 0;
}
