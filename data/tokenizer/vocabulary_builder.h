// From the entries of tokenizer files, spelled in GPT-2's byte alphabet, to a Vocabulary.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "data/tokenizer/bpe.h"

namespace anabranch {

// Collects a tokenizer file's entries and checks them against each other.
//
// Every error is a data_error that begins with the `field` or place given, which therefore names
// the file.
class VocabularyBuilder {
 public:
  // One entry of the vocabulary; an id given twice with two spellings is found by finish().
  void add_token(const std::string& spelling, std::uint64_t id, const std::string& field);

  // One special token, listed or not listed as an entry too.
  void add_special(const std::string& text, std::uint64_t id, const std::string& field);

  // One merge, after all tokens.
  void add_merge(std::string_view left, std::string_view right, const std::string& place);

  [[nodiscard]] bool has_token(const std::string& spelling) const {
    return ids_.count(spelling) != 0;
  }

  // The vocabulary: ids must run from 0 without a gap.
  Vocabulary finish(const std::string& source, bool ignore_merges);

 private:
  [[nodiscard]] TokenId id_of(std::string_view spelling, const std::string& place);

  std::unordered_map<std::string, TokenId> ids_;
  std::vector<std::pair<TokenId, const std::string*>> entries_;  // keys of ids_
  std::unordered_set<TokenId> specials_;
  std::vector<TokenPair> merges_;
  std::string key_;  // kept, for look-ups without an allocation each
};

// How a tokenizer file spells each token, by id: special tokens as their text, others in the byte
// alphabet. Throws data_error if two tokens would be spelled alike.
std::vector<std::string> spell_tokens(const Vocabulary& vocabulary);

}  // namespace anabranch
