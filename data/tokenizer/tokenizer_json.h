// tokenizer.json, the form Hugging Face gives a tokenizer: byte-level BPE only.
#pragma once

#include <string>
#include <string_view>

#include "data/tokenizer/bpe.h"
#include "data/tokenizer/split.h"

namespace anabranch {

struct ParsedTokenizer {
  Vocabulary vocabulary;
  SplitPattern pattern;
};

// Reads the text of a tokenizer.json (what is taken and refused: see Tokenizer::load). Checks what
// the file alone can tell; that the vocabulary is whole is checked by Bpe.
//
//   text    of the file; any bytes
//   source  the file's name, for errors
//
// Throws data_error naming the source and the field.
ParsedTokenizer parse_tokenizer_json(std::string_view text, const std::string& source);

// The text of a tokenizer.json that this and Hugging Face's library read alike: the same bytes for
// the same arguments. Throws data_error if a special token is not UTF-8, or is spelled as another.
std::string write_tokenizer_json(const Vocabulary& vocabulary, SplitPattern pattern);

}  // namespace anabranch
