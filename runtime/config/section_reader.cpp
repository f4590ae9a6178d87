#include "runtime/config/section_reader.h"

#include <filesystem>
#include <fstream>

#include "core/base/quote.h"
#include "runtime/config/nearest.h"
#include "runtime/config/number.h"

namespace anabranch {

namespace {

using Kind = YamlNode::Kind;

const char* kind_name(const YamlNode& node) {
  switch (node.kind) {
    case Kind::kNull:
      return "empty";
    case Kind::kMap:
      return "a section";
    case Kind::kList:
      return "a list";
    case Kind::kScalar:
      break;
  }
  return node.quoted ? "text in quotes" : "a value";
}

// What a message shows of a value; a hostile one may be a megabyte.
std::string shown(const YamlNode& node) {
  if (node.kind != Kind::kScalar) return kind_name(node);
  return quote(node.value) + (node.quoted ? " (in quotes: text)" : "");
}

template <class T>
bool read_number(const YamlNode& node, T& field) {
  return node.kind == Kind::kScalar && !node.quoted && parse_number(node.value, field);
}

}  // namespace

std::string read_config_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  if (!in || !(text << in.rdbuf())) {
    std::error_code ignored;
    const bool exists = std::filesystem::exists(path, ignored);
    const bool regular = std::filesystem::is_regular_file(path, ignored);
    throw config_error(path, ": ",
                       !exists    ? "no such file"
                       : !regular ? "not a file"
                                  : "cannot be read, or is empty",
                       "; expected a YAML configuration");
  }
  return text.str();
}

void require_sections(YamlNode& root, const std::string& name) {
  if (root.kind == Kind::kNull) root.kind = Kind::kMap;  // an empty file: all defaults
  if (root.kind == Kind::kMap) return;
  throw config_error(name, ": the file is ", kind_name(root), ", must be sections of keys");
}

YamlNode parse_sections(const std::string& text, const std::string& name,
                        const std::vector<std::string>& sets) {
  YamlNode root = parse_yaml(text, name);
  require_sections(root, name);
  for (const std::string& set : sets) set_yaml(root, set);
  return root;
}

void refuse(const std::vector<std::string>& problems) {
  if (problems.empty()) return;
  constexpr size_t kMostShown = 20;
  std::string message;
  for (size_t i = 0; i < problems.size() && i < kMostShown; ++i) {
    message += (i == 0 ? "" : "\n") + problems[i];
  }
  if (problems.size() > kMostShown) {
    message += join("\nand ", problems.size() - kMostShown, " more");
  }
  throw Error(Fault::kConfig, message);
}

void SectionReader::operator()(const char* key, int64_t& field, int64_t min, int64_t max,
                               const char* /*help*/) {
  const YamlNode* node = find(key);
  if (node == nullptr) return;
  if (!read_number(*node, field) || field < min || field > max) {
    problem(*node, join("a whole number from ", min, " to ", max), key);
  }
}

void SectionReader::operator()(const char* key, AutoInt& field, int64_t min, int64_t max,
                               const char* /*help*/) {
  const YamlNode* node = find(key);
  if (node == nullptr) return;
  field.value = 0;
  if (node->kind == Kind::kScalar && node->value == "auto") return;
  if (!read_number(*node, field.value) || field.value < min || field.value > max) {
    problem(*node, join("auto or a whole number from ", min, " to ", max), key);
  }
}

void SectionReader::operator()(const char* key, double& field, double min, double max,
                               const char* /*help*/) {
  const YamlNode* node = find(key);
  if (node == nullptr) return;
  if (!read_number(*node, field) || !(field >= min && field <= max)) {
    problem(*node, "a number from " + number_text(min) + " to " + number_text(max), key);
  }
}

void SectionReader::operator()(const char* key, std::vector<int64_t>& field, int64_t min,
                               int64_t max, const char* /*help*/) {
  const YamlNode* node = find(key);
  if (node == nullptr) return;
  const std::string expected = join("a list of whole numbers from ", min, " to ", max);
  if (node->kind != Kind::kList) return problem(*node, expected, key);
  field.clear();
  for (const YamlNode& item : node->items) {
    int64_t value = 0;
    if (!read_number(item, value) || value < min || value > max) {
      return problem(item, expected, key);
    }
    field.push_back(value);
  }
}

void SectionReader::operator()(const char* key, std::vector<std::string>& field,
                               const char* /*help*/) {
  const YamlNode* node = find(key);
  if (node == nullptr) return;
  if (node->kind != Kind::kList) return problem(*node, "a list of words", key);
  field.clear();
  for (const YamlNode& item : node->items) {
    if (item.kind != Kind::kScalar || item.value.empty()) {
      return problem(item, "a list of words", key);
    }
    field.push_back(item.value);
  }
}

void SectionReader::operator()(const char* key, bool& field, const char* /*help*/) {
  const YamlNode* node = find(key);
  if (node == nullptr) return;
  const bool plain = node->kind == Kind::kScalar && !node->quoted;
  if (!plain || (node->value != "true" && node->value != "false")) {
    return problem(*node, "true or false", key);
  }
  field = node->value == "true";
}

void SectionReader::operator()(const char* key, std::string& field, const char* /*help*/) {
  const YamlNode* node = find(key);
  if (node == nullptr) return;
  const bool cut = node->value.find('\0') != std::string::npos;  // as a path it would be
  if (node->kind != Kind::kScalar || cut) return problem(*node, "a word without NUL", key);
  field = node->value;
}

void SectionReader::finish() {
  for (const YamlNode& item : map_.items) {
    if (std::ranges::find(known_, item.key) == known_.end()) unknown(item);
  }
}

void SectionReader::problem_word(const YamlNode& node, const std::vector<std::string>& words,
                                 const char* key) {
  problem(node, "one of " + word_list(words), key, nearest_or_known(node.value, words, "", ""));
}

const YamlNode* SectionReader::find(const char* key) {
  known_.emplace_back(key);
  return map_.find(key);
}

void SectionReader::problem(const YamlNode& node, const std::string& expected, const char* key,
                            const std::string& hint) {
  problems_.push_back(node.where + ": " + prefix_ + key + " is " + shown(node) + ", must be " +
                      expected + hint);
}

void SectionReader::unknown(const YamlNode& item) {
  const std::string key = item.key.substr(0, 80);
  std::string what = hint_ ? hint_(prefix_, key) : "";
  if (what.empty()) {
    what = "unknown key " + prefix_ + key + nearest_or_known(key, known_, prefix_);
  }
  problems_.push_back(item.where + ": " + what);
}

}  // namespace anabranch
