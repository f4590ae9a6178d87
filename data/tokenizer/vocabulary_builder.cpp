#include "data/tokenizer/vocabulary_builder.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "core/base/error.h"
#include "core/base/quote.h"
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
  const auto [at, is_new] = ids_.try_emplace(spelling, token);
  if (is_new) {
    entries_.emplace_back(token, &at->first);
  } else if (at->second != token) {
    throw data_error(field, ": ", quote(spelling), " has both the ids ", at->second, " and ", id);
  }
}

void VocabularyBuilder::add_special(const std::string& text, std::uint64_t id,
                                    const std::string& field) {
  if (text.empty()) throw data_error(field, ": a special token has no text");
  add_token(text, id, field);
  specials_.insert(static_cast<TokenId>(id));
}

TokenId VocabularyBuilder::id_of(std::string_view spelling, const std::string& place) {
  key_ = spelling;
  const auto found = ids_.find(key_);
  if (found == ids_.end()) {
    throw data_error(place, ": ", quote(spelling), " is not in the vocabulary");
  }
  return found->second;
}

void VocabularyBuilder::add_merge(std::string_view left, std::string_view right,
                                  const std::string& place) {
  const TokenId left_id = id_of(left, place);
  merges_.push_back({left_id, id_of(right, place)});
}

Vocabulary VocabularyBuilder::finish(const std::string& source, bool ignore_merges) {
  Vocabulary vocabulary;
  vocabulary.ignore_merges = ignore_merges;
  vocabulary.merges = std::move(merges_);
  std::sort(entries_.begin(), entries_.end());
  for (const auto& [id, key] : entries_) {
    const std::string& spelling = *key;
    if (id < vocabulary.tokens.size()) {
      throw data_error(source, ": id ", id, " is given to ", quote(spelling),
                       " and to another token");
    }
    if (id != vocabulary.tokens.size()) {
      throw data_error(source, ": no token has id ", vocabulary.tokens.size(), ", but ",
                       quote(spelling), " has ", id, "; ids run from 0 without a gap");
    }
    if (specials_.count(id) != 0) {
      vocabulary.tokens.push_back(spelling);
      vocabulary.specials.push_back(id);
      continue;
    }
    auto bytes = unspell_bytes(spelling);
    if (!bytes) {
      throw data_error(source, ": token ", id, ", ", quote(spelling), ", is not spelled in the ",
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
      throw data_error("two tokens are both spelled ", quote(spelling),
                       "; rename the special token");
    }
  }
  return spellings;
}

}  // namespace anabranch
