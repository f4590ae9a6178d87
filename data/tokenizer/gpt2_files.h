// GPT-2's two tokenizer files: vocab.bpe, the merges, and encoder.json, the ids.
#pragma once

#include <string>
#include <string_view>

#include "data/tokenizer/bpe.h"

namespace anabranch {

// Reads the texts of the two files.
//
//   merges, ids    the files' bytes
//   ..._source     the files' names, for errors
//
// Throws data_error naming the file and the line or entry.
Vocabulary parse_gpt2(std::string_view merges, const std::string& merges_source,
                      std::string_view ids, const std::string& ids_source);

// The text of vocab.bpe.
std::string write_gpt2_merges(const Vocabulary& vocabulary);

// The text of encoder.json, on one line and in ASCII as GPT-2's is.
std::string write_gpt2_ids(const Vocabulary& vocabulary);

}  // namespace anabranch
