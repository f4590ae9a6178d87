#include "data/tokenizer/gpt2_files.h"

#include <algorithm>
#include <unordered_set>

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/quote.h"
#include "data/tokenizer/byte_alphabet.h"
#include "data/tokenizer/vocabulary_builder.h"

namespace anabranch {
namespace {

using nlohmann::json;

struct MergeLine {
  std::string_view left;
  std::string_view right;
  std::string place;
};

std::vector<MergeLine> parse_lines(std::string_view text, const std::string& source) {
  std::vector<MergeLine> merges;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || (number == 1 && line.starts_with("#version"))) continue;
    const std::size_t space = line.find(' ');
    std::string place = join(source, ':', number);
    if (space == std::string_view::npos || space != line.rfind(' ')) {
      throw data_error(place, ": found ", quote(line),
                       ", expected two tokens with one space between");
    }
    merges.push_back({line.substr(0, space), line.substr(space + 1), std::move(place)});
  }
  return merges;
}

// Single bytes and results of merges are text; every other entry is a special token.
bool is_text(const std::string& spelling, const std::unordered_set<std::string>& merged) {
  if (merged.count(spelling) != 0) return true;
  const auto bytes = unspell_bytes(spelling);
  return bytes && bytes->size() == 1;
}

}  // namespace

Vocabulary parse_gpt2(std::string_view merges, const std::string& merges_source,
                      std::string_view ids, const std::string& ids_source) {
  const std::vector<MergeLine> lines = parse_lines(merges, merges_source);
  std::unordered_set<std::string> merged;
  for (const MergeLine& line : lines) merged.insert(std::string(line.left).append(line.right));

  json entries;
  try {
    entries = json::parse(ids);
  } catch (const json::exception& error) {
    throw data_error(ids_source, ": not JSON: ", excerpt(error.what(), kReasonBytes));
  }
  if (!entries.is_object()) throw data_error(ids_source, ": expected an object of tokens and ids");
  VocabularyBuilder builder;
  for (const auto& [spelling, id] : entries.items()) {
    if (!id.is_number_unsigned()) {
      throw data_error(ids_source, ": ", quote(spelling), " has no id (0 or greater)");
    }
    if (is_text(spelling, merged)) {
      builder.add_token(spelling, id.get<std::uint64_t>(), ids_source);
    } else {
      builder.add_special(spelling, id.get<std::uint64_t>(), ids_source);
    }
  }
  for (const MergeLine& line : lines) builder.add_merge(line.left, line.right, line.place);
  return builder.finish(ids_source, false);
}

std::string write_gpt2_merges(const Vocabulary& vocabulary) {
  std::string out = "#version: 0.2\n";
  for (const auto [left, right] : vocabulary.merges) {
    out +=
        spell_bytes(vocabulary.tokens[left]) + ' ' + spell_bytes(vocabulary.tokens[right]) + '\n';
  }
  return out;
}

std::string write_gpt2_ids(const Vocabulary& vocabulary) {
  const std::vector<std::string> spellings = spell_tokens(vocabulary);
  std::string out = "{";
  for (std::size_t id = 0; id < spellings.size(); ++id) {
    out += id == 0 ? "" : ", ";
    out += json(spellings[id]).dump(-1, ' ', true) + ": " + std::to_string(id);
  }
  return out + '}';
}

}  // namespace anabranch
