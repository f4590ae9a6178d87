// The one way in which YAML becomes configurations: strictly, with every problem and its line.
//
// A configuration is a struct with `visit`, of fields and of sections, as in sections.h.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <type_traits>
#include <vector>

#include "core/base/error.h"
#include "runtime/config/values.h"
#include "runtime/config/yaml.h"

namespace anabranch {

// The text of a configuration file. Throws Error (config) if it cannot be read.
std::string read_config_file(const std::string& path);

// Makes a map of an empty document. Throws Error (config) if it is anything else than a map.
//
//   name  how messages call it
void require_sections(YamlNode& root, const std::string& name);

// A configuration's YAML with the command line's "a.b=c" over it; an empty file is an empty map.
//
// Throws Error (config) as require_sections(), usage as set_yaml().
YamlNode parse_sections(const std::string& text, const std::string& name,
                        const std::vector<std::string>& sets);

// Throws Error (config) that lists the problems, if there are any.
void refuse(const std::vector<std::string>& problems);

// Reads the entries of one map into the fields of one section.
class SectionReader {
 public:
  // What to say of a key that no field took: "c is a key of X models". Empty: nothing special.
  using Hint = std::function<std::string(const std::string& prefix, const std::string& key)>;

  // Keeps references.
  //
  //   prefix    of the section's keys: "optim."
  //   problems  what is wrong is added here
  SectionReader(const YamlNode& map, std::string prefix, std::vector<std::string>& problems,
                const Hint& hint)
      : map_(map), prefix_(std::move(prefix)), problems_(problems), hint_(hint) {}

  template <class S>
  void operator()(const char* key, S& section) {
    const YamlNode* node = find(key);
    if (node == nullptr) return;
    if (node->kind != YamlNode::Kind::kMap) return problem(*node, "a section of keys", key);
    read(*node, prefix_ + key + ".", section);
  }

  void operator()(const char* key, int64_t& field, int64_t min, int64_t max, const char* help);
  void operator()(const char* key, AutoInt& field, int64_t min, int64_t max, const char* help);
  void operator()(const char* key, double& field, double min, double max, const char* help);
  void operator()(const char* key, std::vector<int64_t>& field, int64_t min, int64_t max,
                  const char* help);
  void operator()(const char* key, std::vector<std::string>& field, const char* help);
  void operator()(const char* key, bool& field, const char* help);
  void operator()(const char* key, std::string& field, const char* help);

  template <class E>
  requires std::is_enum_v<E>

  void operator()(const char* key, E& field, const char* /*help*/) {
    const YamlNode* node = find(key);
    if (node == nullptr) return;
    const auto words = words_of(E{});
    for (size_t i = 0; i < words.size(); ++i) {
      if (node->kind == YamlNode::Kind::kScalar && node->value == words[i]) {
        field = static_cast<E>(i);
        return;
      }
    }
    problem_word(*node, {words.begin(), words.end()}, key);
  }

  template <class S>
  void operator()(const char* key, std::vector<S>& field, const char* /*help*/) {
    const YamlNode* node = find(key);
    if (node == nullptr) return;
    if (node->kind != YamlNode::Kind::kList) return problem(*node, "a list", key);
    field.clear();
    for (size_t i = 0; i < node->items.size(); ++i) {
      const std::string name = join(key, "[", i, "]");
      if (node->items[i].kind != YamlNode::Kind::kMap) {
        problem(node->items[i], "a section of keys", name.c_str());
        continue;
      }
      read(node->items[i], prefix_ + name + ".", field.emplace_back());
    }
  }

  // Reports what the map holds and no field took.
  void finish();

  // `node` is none of the words that `key` may be.
  void problem_word(const YamlNode& node, const std::vector<std::string>& words, const char* key);

 private:
  template <class S>
  void read(const YamlNode& map, const std::string& prefix, S& section) {
    SectionReader reader(map, prefix, problems_, hint_);
    section.visit(reader);
    reader.finish();
  }

  const YamlNode* find(const char* key);
  void problem(const YamlNode& node, const std::string& expected, const char* key,
               const std::string& hint = "");
  void unknown(const YamlNode& item);

  const YamlNode& map_;
  std::string prefix_;
  std::vector<std::string>& problems_;
  const Hint& hint_;
  std::vector<std::string> known_;
};

// Reads a whole configuration that has no presets.
//
//   text, name, sets  as parse_sections() takes them
//
// Checks types, ranges and unknown keys. Throws Error (config) that lists every problem.
template <class S>
S read_sections(const std::string& text, const std::string& name,
                const std::vector<std::string>& sets) {
  const YamlNode root = parse_sections(text, name, sets);
  S sections;
  std::vector<std::string> problems;
  const SectionReader::Hint no_hint;
  SectionReader reader(root, "", problems, no_hint);
  sections.visit(reader);
  reader.finish();
  refuse(problems);
  return sections;
}

}  // namespace anabranch
