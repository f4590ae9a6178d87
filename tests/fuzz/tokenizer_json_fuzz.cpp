// Any bytes as a tokenizer.json: a tokenizer that encodes and decodes, or data_error.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "data/tokenizer/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using anabranch::Tokenizer;
  try {
    const std::string text(data, data + size);
    const Tokenizer tokenizer = Tokenizer::from_json("fuzz", text, "fuzz.json");
    std::vector<anabranch::TokenId> ids;
    tokenizer.encode_ordinary(text, ids);
    if (tokenizer.decode(ids) != text) std::abort();
    const Tokenizer again("again", tokenizer.vocabulary(), tokenizer.pattern());
    if (again.vocabulary().tokens != tokenizer.vocabulary().tokens) std::abort();
  } catch (const anabranch::Error& error) {
    if (error.fault() != anabranch::Fault::kData) std::abort();
  }
  return 0;
}
