// A YAML document as a plain tree in which every value knows where it was written.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace anabranch {

struct YamlNode {
  enum class Kind : uint8_t { kNull, kScalar, kMap, kList };

  Kind kind = Kind::kNull;
  std::string key;              // its name, where the parent is a map
  std::string where;            // "runs.yaml:12" or "--set optim.lr=1": the start of any message
  std::string value;            // of a scalar
  bool quoted = false;          // a scalar in quotes is a string, never a number
  std::vector<YamlNode> items;  // of a map or list, in the order written

  // The entry of a map, or null.
  [[nodiscard]] const YamlNode* find(const std::string& name) const;
  YamlNode* find(const std::string& name);
};

// Parses one document.
//
//   text  at most 1 MiB of UTF-8
//   name  how messages call it; a value's `where` is "name:line"
//
// Stricter than YAML: anchors, aliases, tags, keys given twice, keys that are not plain words,
// several documents, and more than 16 levels are refused, so that no file is larger than it looks.
// Throws Error (config) with the line.
YamlNode parse_yaml(const std::string& text, const std::string& name);

// Sets the value that a command line's "a.b=c" names; `c` is YAML and replaces what was there.
// Throws Error: usage if there is no "=" or a part of the name is empty, config if `c` is not YAML.
void set_yaml(YamlNode& root, const std::string& assignment);

// The same with the value itself, which keeps where it was written.
//
//   key  "a.b"
void set_yaml(YamlNode& root, const std::string& key, YamlNode value);

// A word as YAML: plain where that reads back as the same word, else in double quotes.
std::string yaml_word(const std::string& word);

}  // namespace anabranch
