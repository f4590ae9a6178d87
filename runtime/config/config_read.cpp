#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <type_traits>

#include "core/base/error.h"
#include "core/base/quote.h"
#include "runtime/config/budget.h"
#include "runtime/config/config.h"
#include "runtime/config/kappa_recipe.h"
#include "runtime/config/nearest.h"
#include "runtime/config/number.h"
#include "runtime/config/yaml.h"

namespace anabranch {

namespace {

using Kind = YamlNode::Kind;

// The dotted names of all keys, for "did you mean".
class KeyNames {
 public:
  explicit KeyNames(std::string prefix = "") : prefix_(std::move(prefix)) {}

  template <class S>
  void operator()(const char* key, S& section) {
    KeyNames inner(prefix_ + key + ".");
    section.visit(inner);
    names.insert(names.end(), inner.names.begin(), inner.names.end());
  }

  template <class... Rest>
  void operator()(const char* key,
                  Rest&&... /*field, bounds, help*/) requires(sizeof...(Rest) > 1) {
    names.push_back(prefix_ + key);
  }

  std::vector<std::string> names;

 private:
  std::string prefix_;
};

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

// Reads the entries of one map into the fields of one section.
class Reader {
 public:
  Reader(const YamlNode& map, std::string prefix, std::vector<std::string>& problems)
      : map_(map), prefix_(std::move(prefix)), problems_(problems) {}

  template <class S>
  void operator()(const char* key, S& section) {
    const YamlNode* node = find(key);
    if (node == nullptr) return;
    if (node->kind != Kind::kMap) return problem(*node, "a section of keys", key);
    read(*node, prefix_ + key + ".", section);
  }

  void operator()(const char* key, int64_t& field, int64_t min, int64_t max, const char* /*help*/) {
    const YamlNode* node = find(key);
    if (node == nullptr) return;
    if (!read_int(*node, field) || field < min || field > max) {
      problem(*node, join("a whole number from ", min, " to ", max), key);
    }
  }

  void operator()(const char* key, AutoInt& field, int64_t min, int64_t max, const char* /*help*/) {
    const YamlNode* node = find(key);
    if (node == nullptr) return;
    field.value = 0;
    if (node->kind == Kind::kScalar && node->value == "auto") return;
    if (!read_int(*node, field.value) || field.value < min || field.value > max) {
      problem(*node, join("auto or a whole number from ", min, " to ", max), key);
    }
  }

  void operator()(const char* key, double& field, double min, double max, const char* /*help*/) {
    const YamlNode* node = find(key);
    if (node == nullptr) return;
    if (!read_double(*node, field) || !(field >= min && field <= max)) {
      problem(*node, "a number from " + number_text(min) + " to " + number_text(max), key);
    }
  }

  void operator()(const char* key, std::vector<int64_t>& field, int64_t min, int64_t max,
                  const char* /*help*/) {
    const YamlNode* node = find(key);
    if (node == nullptr) return;
    const std::string expected = join("a list of whole numbers from ", min, " to ", max);
    if (node->kind != Kind::kList) return problem(*node, expected, key);
    field.clear();
    for (const YamlNode& item : node->items) {
      int64_t value = 0;
      if (!read_int(item, value) || value < min || value > max) {
        return problem(item, expected, key);
      }
      field.push_back(value);
    }
  }

  void operator()(const char* key, bool& field, const char* /*help*/) {
    const YamlNode* node = find(key);
    if (node == nullptr) return;
    const bool plain = node->kind == Kind::kScalar && !node->quoted;
    if (!plain || (node->value != "true" && node->value != "false")) {
      return problem(*node, "true or false", key);
    }
    field = node->value == "true";
  }

  void operator()(const char* key, std::string& field, const char* /*help*/) {
    const YamlNode* node = find(key);
    if (node == nullptr) return;
    const bool cut = node->value.find('\0') != std::string::npos;  // as a path it would be
    if (node->kind != Kind::kScalar || cut) return problem(*node, "a word without NUL", key);
    field = node->value;
  }

  template <class E>
  requires std::is_enum_v<E>

  void operator()(const char* key, E& field, const char* /*help*/) {
    const YamlNode* node = find(key);
    if (node == nullptr) return;
    const auto words = words_of(E{});
    for (size_t i = 0; i < words.size(); ++i) {
      if (node->kind == Kind::kScalar && node->value == words[i]) {
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
    if (node->kind != Kind::kList) return problem(*node, "a list", key);
    field.clear();
    for (size_t i = 0; i < node->items.size(); ++i) {
      const std::string name = join(key, "[", i, "]");
      if (node->items[i].kind != Kind::kMap) {
        problem(node->items[i], "a section of keys", name.c_str());
        continue;
      }
      read(node->items[i], prefix_ + name + ".", field.emplace_back());
    }
  }

  // Reports what the map holds and no field took.
  void finish() {
    for (const YamlNode& item : map_.items) {
      if (std::find(known_.begin(), known_.end(), item.key) == known_.end()) unknown(item);
    }
  }

  void problem_word(const YamlNode& node, const std::vector<std::string>& words, const char* key) {
    const std::string nearest = nearest_word(node.value, words);
    problem(node, "one of " + word_list(words), key,
            nearest.empty() ? "" : "; nearest is " + nearest);
  }

 private:
  template <class S>
  void read(const YamlNode& map, const std::string& prefix, S& section) {
    Reader reader(map, prefix, problems_);
    section.visit(reader);
    reader.finish();
  }

  const YamlNode* find(const char* key) {
    known_.emplace_back(key);
    return map_.find(key);
  }

  void problem(const YamlNode& node, const std::string& expected, const char* key,
               const std::string& hint = "") {
    problems_.push_back(node.where + ": " + prefix_ + key + " is " + shown(node) + ", must be " +
                        expected + hint);
  }

  void unknown(const YamlNode& item) {
    const std::string key = item.key.substr(0, 80);
    const std::vector<std::string> families = families_with(prefix_ + key);
    if (!families.empty()) {
      problems_.push_back(join(item.where, ": ", prefix_, key, " is a key of ", word_list(families),
                               " models; leave it out, or set model.type"));
      return;
    }
    std::string nearest = elsewhere(key);
    if (nearest.empty()) {
      nearest = nearest_word(key, known_);
      if (!nearest.empty()) nearest = prefix_ + nearest;
    }
    problems_.push_back(
        item.where + ": unknown key " + prefix_ + key +
        (nearest.empty() ? "; known here: " + word_list(known_) : "; nearest is " + nearest));
  }

  // The families that do have a key, by its dotted name.
  static std::vector<std::string> families_with(const std::string& name) {
    std::vector<std::string> families;
    const auto words = words_of(ModelType{});
    for (size_t i = 0; i < words.size(); ++i) {
      KeyNames all;
      Config config;
      config.model.type = static_cast<ModelType>(i);
      config.visit(all);
      if (std::ranges::find(all.names, name) != all.names.end()) families.emplace_back(words[i]);
    }
    return families;
  }

  // The right key in the wrong section.
  static std::string elsewhere(const std::string& key) {
    KeyNames all;
    Config config;
    config.visit(all);
    for (const std::string& name : all.names) {
      if (name.ends_with("." + key) || name == key) return name;
    }
    return "";
  }

  static bool read_double(const YamlNode& node, double& field) {
    return node.kind == Kind::kScalar && !node.quoted && parse_number(node.value, field);
  }

  static bool read_int(const YamlNode& node, int64_t& field) {
    return node.kind == Kind::kScalar && !node.quoted && parse_number(node.value, field);
  }

  const YamlNode& map_;
  std::string prefix_;
  std::vector<std::string>& problems_;
  std::vector<std::string> known_;
};

void read_preset(const YamlNode& root, Config& config, Reader& reader) {
  const YamlNode* model = root.find("model");
  const YamlNode* preset = model != nullptr ? model->find("preset") : nullptr;
  if (preset == nullptr || preset->kind != Kind::kScalar) return;
  if (!apply_preset(config.model, preset->value)) {
    reader.problem_word(*preset, model_presets(), "model.preset");
    return;
  }
  if (!is_recipe(preset->value)) return;
  // A recipe goes by what the file says beside it, which is read for that, and again over it.
  Config wish = config;
  std::vector<std::string> told_the_second_time;
  Reader first(root, "", told_the_second_time);
  wish.visit(first);
  apply_recipe(config, preset->value, wish.model);
}

// The last part of the run directory if there is one, else the file's name; of letters that a name
// may have.
std::string default_name(const std::string& run_dir, const std::string& file) {
  namespace fs = std::filesystem;
  fs::path folder = fs::path(run_dir).lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();  // "runs/a/"
  const std::string last = folder.filename().string();
  const bool named = !last.empty() && last != "." && last != "..";
  std::string name = named ? last : fs::path(file).stem().string();
  if (!named) return name;
  for (char& c : name) {
    if (kNameCharacters.find(c) == std::string_view::npos) c = '-';
  }
  if (name.front() == '.') name.front() = '-';
  return name;
}

}  // namespace

Config parse_config(const std::string& text, const std::string& name,
                    const std::vector<std::string>& sets) {
  YamlNode root = parse_yaml(text, name);
  if (root.kind == Kind::kNull) root.kind = Kind::kMap;  // an empty file: all defaults
  if (root.kind != Kind::kMap) {
    throw config_error(name, ": the file is ", kind_name(root), ", must be sections of keys");
  }
  for (const std::string& set : sets) set_yaml(root, set);

  Config config;
  std::vector<std::string> problems;
  Reader reader(root, "", problems);
  read_preset(root, config, reader);
  config.visit(reader);
  reader.finish();
  if (!problems.empty()) {
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
  if (config.run.name.empty()) config.run.name = default_name(config.run.dir, name);
  fill_derived(config);
  return config;
}

Config load_config(const std::string& path, const std::vector<std::string>& sets) {
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
  return parse_config(text.str(), path, sets);
}

void fill_derived(Config& config) {
  if (config.run.name.empty()) config.run.name = "run";
  if (config.run.dir.empty()) config.run.dir = "runs/" + config.run.name;
  fill_sizes(config.model);
  fill_budget(config.model, config.train);
}

}  // namespace anabranch
