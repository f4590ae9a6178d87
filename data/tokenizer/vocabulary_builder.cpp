#include "data/tokenizer/vocabulary_builder.h"

#include <limits>
#include <unordered_set>
#include <utility>

#include "core/base/error.h"
#include "data/tokenizer/byte_alphabet.h"

namespace anabranch {
namespace {

TokenId checked_id(std::uint64_t id, const std::string& field) {
  if (id >= std::numeric_limits<TokenId>::max()) {
    throw data_error(field, ": id ", id, " is too large; ids run from 0 without a gap");
  }
  return static_cast<TokenId>(id);
}

}  // namespace

void VocabularyBuilder::add_token(const std::string& spelling, std::uint64_t id,
                                  const std::string& field) {
  const TokenId token = checked_id(id, field);
  const auto [at_id, new_id] = spellings_.try_emplace(token, spelling);
  if (!new_id && at_id->second != spelling) {
    throw data_error(field, ": id ", id, " is given to both '", at_id->second, "' and '", spelling,
                     "'");
  }
  const auto [at_spelling, new_spelling] = ids_.try_emplace(spelling, token);
  if (at_spelling->second != token) {
    throw data_error(field, ": '", spelling, "' has both the ids ", at_spelling->second, " and ",
                     id);
  }
}

void VocabularyBuilder::add_special(const std::string& text, std::uint64_t id,
                                    const std::string& field) {
  if (text.empty()) throw data_error(field, ": a special token has no text");
  add_token(text, id, field);
  specials_.try_emplace(checked_id(id, field), text);
}

TokenId VocabularyBuilder::id_of(std::string_view spelling, const std::string& place) const {
  const auto found = ids_.find(std::string(spelling));
  if (found == ids_.end()) {
    throw data_error(place, ": '", spelling, "' is not in the vocabulary");
  }
  return found->second;
}

void VocabularyBuilder::add_merge(std::string_view left, std::string_view right,
                                  const std::string& place) {
  const TokenPair merge{id_of(left, place), id_of(right, place)};
  static_cast<void>(id_of(std::string(left).append(right), place));  // throws if there is none
  merges_.push_back(merge);
}

Vocabulary VocabularyBuilder::finish(const std::string& source, bool ignore_merges) {
  Vocabulary vocabulary;
  vocabulary.ignore_merges = ignore_merges;
  vocabulary.merges = std::move(merges_);
  for (const auto& [id, spelling] : spellings_) {
    if (id != vocabulary.tokens.size()) {
      throw data_error(source, ": no token has id ", vocabulary.tokens.size(), ", but '", spelling,
                       "' has ", id, "; ids run from 0 without a gap");
    }
    if (specials_.count(id) != 0) {
      vocabulary.tokens.push_back(spelling);
      vocabulary.specials.push_back(id);
      continue;
    }
    auto bytes = unspell_bytes(spelling);
    if (!bytes) {
      throw data_error(source, ": token ", id, ", '", spelling, "', is not spelled in the ",
                       "byte-level alphabet and is no special token");
    }
    vocabulary.tokens.push_back(std::move(*bytes));
  }
  return vocabulary;
}

std::vector<std::string> spell_tokens(const Vocabulary& vocabulary) {
  std::vector<std::string> spellings;
  for (const std::string& token : vocabulary.tokens) spellings.push_back(spell_bytes(token));
  for (const TokenId id : vocabulary.specials) spellings[id] = vocabulary.tokens[id];
  std::unordered_set<std::string_view> seen;
  for (const std::string& spelling : spellings) {
    if (!seen.insert(spelling).second) {
      throw data_error("two tokens are both spelled '", spelling, "'; rename the special token");
    }
  }
  return spellings;
}

}  // namespace anabranch
