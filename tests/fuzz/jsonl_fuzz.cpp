// JSON lines of any bytes: documents or an Error, nothing else.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <unistd.h>

#include "core/base/error.h"
#include "data/text/documents.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string path =
      (std::filesystem::temp_directory_path() / anabranch::join("fuzz-", ::getpid(), ".jsonl"))
          .string();
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  try {
    const auto source = anabranch::open_documents(path, {.max_document_bytes = 1 << 16});
    for (std::string document; source->next(document);) (void)anabranch::is_utf8(document);
  } catch (const anabranch::Error& error) {
    if (error.fault() != anabranch::Fault::kData) throw;
  }
  std::filesystem::remove(path);
  return 0;
}
