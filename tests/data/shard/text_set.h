// A small text, a tokenizer of bytes and the shards made of them.
#pragma once

#include <string>
#include <vector>

#include "core/base/philox.h"
#include "data/shard/build.h"
#include "data/shard/dataset.h"
#include "tests/data/folder.h"

namespace anabranch::test {

// A token for each byte, one merge, and <|endoftext|> (id 257); if asked for, <|mask|> (258) too.
inline Tokenizer byte_tokenizer(const std::string& name = "bytes", bool with_mask = false) {
  Vocabulary vocabulary;
  for (int byte = 0; byte < 256; ++byte) {
    vocabulary.tokens.emplace_back(1, static_cast<char>(byte));
  }
  vocabulary.tokens.emplace_back("ab");
  vocabulary.merges.push_back({'a', 'b'});
  vocabulary.tokens.emplace_back("<|endoftext|>");
  vocabulary.specials.push_back(257);
  if (with_mask) {
    vocabulary.tokens.emplace_back("<|mask|>");
    vocabulary.specials.push_back(258);
  }
  return {name, vocabulary, SplitPattern::kGpt2};
}

// Documents of 1 to `longest` letters, which differ.
inline std::vector<std::string> documents(int count, uint32_t seed, uint32_t longest) {
  std::vector<std::string> all;
  for (int d = 0; d < count; ++d) {
    const auto number = static_cast<uint64_t>(d);
    std::string text;
    const uint32_t length = 1 + philox(seed, number)[0] % longest;
    while (text.size() < length) {
      text += static_cast<char>('a' + philox(seed, number, 1 + text.size())[0] % 26);
    }
    all.push_back(text);
  }
  return all;
}

inline std::string json_lines(const std::vector<std::string>& texts) {
  std::string lines;
  for (const std::string& text : texts) lines.append("{\"text\": \"").append(text).append("\"}\n");
  return lines;
}

// Options for one source over `inputs` into `out`.
inline BuildOptions build_options(const std::string& out, const std::vector<std::string>& inputs) {
  BuildOptions options;
  options.out = out;
  options.sources.emplace_back().inputs = inputs;
  options.validation_fraction = 0.1;
  options.workers = 1;
  return options;
}

// All tokens of a stream.
inline std::vector<int32_t> all_tokens(const TokenStream& stream) {
  std::vector<int32_t> tokens(static_cast<size_t>(stream.tokens()));
  stream.read(0, stream.tokens(), tokens.data());
  return tokens;
}

}  // namespace anabranch::test
