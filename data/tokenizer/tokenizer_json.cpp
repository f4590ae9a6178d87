#include "data/tokenizer/tokenizer_json.h"

#include <initializer_list>

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/quote.h"
#include "data/tokenizer/byte_alphabet.h"
#include "data/tokenizer/vocabulary_builder.h"

namespace anabranch {
namespace {

using nlohmann::json;

// A value of the file and where it stands, so that every error can say so.
class Field {
 public:
  Field(const json& value, std::string place) : value_(value), place_(std::move(place)) {}

  [[nodiscard]] const std::string& place() const { return place_; }

  [[nodiscard]] const json& value() const { return value_; }

  // The member `key`, null if there is none.
  [[nodiscard]] Field operator[](const char* key) const {
    if (!value_.is_object()) fail("an object");
    const auto found = value_.find(key);
    const bool top = place_.ends_with(':');
    return {found == value_.end() ? null() : *found, place_ + (top ? " " : ".") + key};
  }

  [[nodiscard]] Field item(std::size_t i) const { return {value_[i], join(place_, '[', i, ']')}; }

  [[nodiscard]] std::size_t array_size() const {
    if (!value_.is_array()) fail("an array");
    return value_.size();
  }

  [[nodiscard]] const std::string& string() const {
    if (!value_.is_string()) fail("a string");
    return value_.get_ref<const std::string&>();
  }

  [[nodiscard]] std::uint64_t id() const {
    if (!value_.is_number_unsigned()) fail("an id (0 or greater)");
    return value_.get<std::uint64_t>();
  }

  [[nodiscard]] bool flag(bool absent) const {
    if (value_.is_null()) return absent;
    if (!value_.is_boolean()) fail("true or false");
    return value_.get<bool>();
  }

  [[nodiscard]] bool is_null() const { return value_.is_null(); }

  [[noreturn]] void fail(std::string_view expected) const {
    const std::string found =
        value_.is_null() ? "nothing" : value_.dump(-1, ' ', true, json::error_handler_t::replace);
    throw data_error(place_, place_.ends_with(':') ? " found " : ": found ",
                     excerpt(found, kQuotedBytes), ", expected ", expected);
  }

 private:
  static const json& null() {
    static const json kNull;
    return kNull;
  }

  const json& value_;
  std::string place_;
};

void need(bool holds, const Field& field, std::string_view expected) {
  if (!holds) field.fail(expected);
}

void check_byte_level(const Field& step, bool use_regex) {
  need(!step["add_prefix_space"].flag(true), step["add_prefix_space"],
       "false: a space before the text would change its ids");
  need(step["use_regex"].flag(true) == use_regex, step["use_regex"],
       use_regex ? "true, or a Split before this step" : "false after a Split");
}

// A Split that keeps every piece: "Isolated", or "Removed" of what lies between the pieces.
SplitPattern parse_split(const Field& step) {
  const std::string& behavior = step["behavior"].string();
  const bool invert = step["invert"].flag(false);
  need((behavior == "Isolated" && !invert) || (behavior == "Removed" && invert), step["behavior"],
       "\"Isolated\" (or \"Removed\" with invert)");
  const Field regex = step["pattern"]["Regex"];
  for (const SplitPattern pattern : {SplitPattern::kGpt2, SplitPattern::kGpt4}) {
    if (regex.string() == split_regex(pattern)) return pattern;
  }
  regex.fail(join("one of the two patterns known here, ", split_regex(SplitPattern::kGpt2), " or ",
                  split_regex(SplitPattern::kGpt4)));
}

SplitPattern parse_pre_tokenizer(const Field& field) {
  const std::string& type = field["type"].string();
  if (type == "ByteLevel") {
    check_byte_level(field, true);
    return SplitPattern::kGpt2;
  }
  need(type == "Sequence", field["type"], "\"ByteLevel\", or \"Sequence\" of Split and ByteLevel");
  const Field steps = field["pretokenizers"];
  need(steps.array_size() == 2, steps, "two steps, Split and ByteLevel");
  const Field split = steps.item(0);
  const Field bytes = steps.item(1);
  need(split["type"].string() == "Split", split["type"], "\"Split\"");
  need(bytes["type"].string() == "ByteLevel", bytes["type"], "\"ByteLevel\"");
  check_byte_level(bytes, false);
  return parse_split(split);
}

// What a BPE model may say besides vocabulary and merges without changing the ids of text.
void check_model(const Field& model) {
  const Field type = model["type"];
  need(type.is_null() || type.string() == "BPE", type, "\"BPE\"");
  need(model["dropout"].is_null() || model["dropout"].value() == 0.0, model["dropout"], "null");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    need(model[key].is_null() || model[key].string().empty(), model[key], "null");
  }
  need(!model["byte_fallback"].flag(false), model["byte_fallback"],
       "false: every byte has its token in a byte-level vocabulary");
}

void parse_added_tokens(const Field& list, VocabularyBuilder& builder) {
  if (list.is_null()) return;
  for (std::size_t i = 0; i < list.array_size(); ++i) {
    const Field token = list.item(i);
    need(token["special"].flag(false), token["special"],
         "true: text is never searched for added tokens here, so that only special ones, which no "
         "plain text gives, can be taken");
    builder.add_special(token["content"].string(), token["id"].id(), token.place());
  }
}

void parse_merge(const Field& merge, VocabularyBuilder& builder) {
  if (merge.value().is_array()) {
    need(merge.array_size() == 2, merge, "two tokens");
    builder.add_merge(merge.item(0).string(), merge.item(1).string(), merge.place());
    return;
  }
  const std::string_view both = merge.string();
  const std::size_t space = both.find(' ');
  need(space != std::string_view::npos && space == both.rfind(' '), merge,
       "two tokens with one space between");
  builder.add_merge(both.substr(0, space), both.substr(space + 1), merge.place());
}

json parse_json(std::string_view text, const std::string& source) {
  try {
    return json::parse(text);
  } catch (const json::exception& error) {
    throw data_error(source, ": not JSON: ", excerpt(error.what(), kReasonBytes));
  }
}

nlohmann::ordered_json byte_level(bool use_regex) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", false},
          {"trim_offsets", true},
          {"use_regex", use_regex}};
}

nlohmann::ordered_json pre_tokenizer(SplitPattern pattern) {
  if (pattern == SplitPattern::kGpt2) return byte_level(true);
  const nlohmann::ordered_json split = {{"type", "Split"},
                                        {"pattern", {{"Regex", split_regex(pattern)}}},
                                        {"behavior", "Isolated"},
                                        {"invert", false}};
  return {{"type", "Sequence"},
          {"pretokenizers", nlohmann::ordered_json::array({split, byte_level(false)})}};
}

// Only appends, for a look-up of each key among 100,000 would take its time.
void append(nlohmann::ordered_json& object, std::string key, nlohmann::ordered_json value) {
  object.get_ref<nlohmann::ordered_json::object_t&>().emplace_back(std::move(key),
                                                                   std::move(value));
}

nlohmann::ordered_json model_json(const Vocabulary& vocabulary) {
  const std::vector<std::string> spellings = spell_tokens(vocabulary);
  auto vocab = nlohmann::ordered_json::object();
  for (std::size_t id = 0; id < spellings.size(); ++id) append(vocab, spellings[id], id);
  auto merges = nlohmann::ordered_json::array();
  for (const auto [left, right] : vocabulary.merges) {
    merges.push_back(spellings[left] + ' ' + spellings[right]);
  }
  return {{"type", "BPE"},
          {"dropout", nullptr},
          {"unk_token", nullptr},
          {"continuing_subword_prefix", nullptr},
          {"end_of_word_suffix", nullptr},
          {"fuse_unk", false},
          {"byte_fallback", false},
          {"ignore_merges", vocabulary.ignore_merges},
          {"vocab", std::move(vocab)},
          {"merges", std::move(merges)}};
}

}  // namespace

ParsedTokenizer parse_tokenizer_json(std::string_view text, const std::string& source) {
  const json parsed = parse_json(text, source);
  const Field file(parsed, source + ":");
  const Field normalizer = file["normalizer"];
  need(normalizer.is_null(), normalizer, "null: text is encoded as it stands");
  const Field model = file["model"];
  check_model(model);
  const SplitPattern pattern = parse_pre_tokenizer(file["pre_tokenizer"]);

  VocabularyBuilder builder;
  const Field vocab = model["vocab"];
  need(vocab.value().is_object(), vocab, "an object of tokens and ids");
  for (const auto& [spelling, id] : vocab.value().items()) {
    const Field field(id, vocab.place());
    builder.add_token(spelling, field.id(), field.place());
  }
  parse_added_tokens(file["added_tokens"], builder);
  const Field merges = model["merges"];
  for (std::size_t i = 0; i < merges.array_size(); ++i) parse_merge(merges.item(i), builder);
  return {builder.finish(source, model["ignore_merges"].flag(false)), pattern};
}

std::string write_tokenizer_json(const Vocabulary& vocabulary, SplitPattern pattern) {
  auto added = nlohmann::ordered_json::array();
  for (const TokenId id : vocabulary.specials) {
    added.push_back({{"id", id},
                     {"content", vocabulary.tokens[id]},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  const nlohmann::ordered_json file = {{"version", "1.0"},
                                       {"truncation", nullptr},
                                       {"padding", nullptr},
                                       {"added_tokens", std::move(added)},
                                       {"normalizer", nullptr},
                                       {"pre_tokenizer", pre_tokenizer(pattern)},
                                       {"post_processor", nullptr},
                                       {"decoder", byte_level(true)},
                                       {"model", model_json(vocabulary)}};
  try {
    return file.dump(2) + '\n';
  } catch (const json::exception& error) {
    throw data_error("cannot write tokenizer.json: ", error.what());
  }
}

}  // namespace anabranch
