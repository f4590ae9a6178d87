#include <algorithm>
#include <filesystem>

#include "core/base/error.h"
#include "runtime/config/budget.h"
#include "runtime/config/config.h"
#include "runtime/config/kappa_recipe.h"
#include "runtime/config/nearest.h"
#include "runtime/config/section_reader.h"

namespace anabranch {

namespace {

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

std::vector<std::string> keys_of(ModelType family) {
  KeyNames all;
  Config config;
  config.model.type = family;
  config.visit(all);
  return all.names;
}

// The families that do have a key, by its dotted name.
std::vector<std::string> families_with(const std::string& name) {
  std::vector<std::string> families;
  const auto words = words_of(ModelType{});
  for (size_t i = 0; i < words.size(); ++i) {
    const std::vector<std::string> keys = keys_of(static_cast<ModelType>(i));
    if (std::ranges::find(keys, name) != keys.end()) families.emplace_back(words[i]);
  }
  return families;
}

// The right key in the wrong section.
std::string elsewhere(const std::string& key) {
  for (const std::string& name : keys_of(ModelType::kGpt2)) {
    if (name.ends_with("." + key) || name == key) return name;
  }
  return "";
}

// What to say of an unknown key that another family or section has.
std::string hint(const std::string& prefix, const std::string& key) {
  const std::vector<std::string> families = families_with(prefix + key);
  if (!families.empty()) {
    return join(prefix, key, " is a key of ", word_list(families),
                " models; leave it out, or set model.type");
  }
  const std::string right = elsewhere(key);
  return right.empty() ? "" : "unknown key " + prefix + key + "; nearest is " + right;
}

void read_preset(const YamlNode& root, Config& config, SectionReader& reader) {
  const YamlNode* model = root.find("model");
  const YamlNode* preset = model != nullptr ? model->find("preset") : nullptr;
  if (preset == nullptr || preset->kind != YamlNode::Kind::kScalar) return;
  if (!apply_preset(config.model, preset->value)) {
    reader.problem_word(*preset, model_presets(), "model.preset");
    return;
  }
  if (!is_recipe(preset->value)) return;
  // A recipe goes by what the file says beside it, which is read for that, and again over it.
  Config wish = config;
  std::vector<std::string> told_the_second_time;
  const SectionReader::Hint none = [](const auto&, const auto&) { return std::string(); };
  SectionReader first(root, "", told_the_second_time, none);
  wish.visit(first);
  apply_recipe(config, preset->value, wish.model);
}

// What it stands for is set before the keys are read, so that those given win.
void read_compat(const YamlNode& root, Config& config) {
  const YamlNode* model = root.find("model");
  const YamlNode* compat = model != nullptr ? model->find("compat") : nullptr;
  if (compat == nullptr || compat->kind != YamlNode::Kind::kScalar) return;
  if (compat->value == word_of(Compat::kReference)) {
    apply_compat(config.model.moep, Compat::kReference);
  }
}

// The family that a document says, by its word or its preset.
ModelType family_of(const YamlNode& root) {
  ModelConfig config;
  const YamlNode* model = root.find("model");
  if (model == nullptr) return config.type;
  if (const YamlNode* preset = model->find("preset")) apply_preset(config, preset->value);
  const YamlNode* type = model->find("type");
  const auto words = words_of(ModelType{});
  for (size_t i = 0; type != nullptr && i < words.size(); ++i) {
    if (type->value == words[i]) config.type = static_cast<ModelType>(i);
  }
  return config.type;
}

// Applies `changes`, and leaves out the keys of the family before that the one after has not.
void change(YamlNode& root, const std::vector<std::string>& changes) {
  YamlNode after = root;
  for (const std::string& set : changes) set_yaml(after, set);
  const std::vector<std::string> had = keys_of(family_of(root)), has = keys_of(family_of(after));
  if (YamlNode* model = root.find("model")) {
    std::erase_if(model->items, [&](const YamlNode& item) {
      const std::string name = "model." + item.key;
      return std::ranges::find(had, name) != had.end() && std::ranges::find(has, name) == has.end();
    });
  }
  for (const std::string& set : changes) set_yaml(root, set);
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
                    const std::vector<std::string>& sets, const std::vector<std::string>& changes) {
  YamlNode root = parse_sections(text, name, sets);
  if (!changes.empty()) change(root, changes);
  return read_config(root, name);
}

Config read_config(const YamlNode& root, const std::string& name) {
  Config config;
  std::vector<std::string> problems;
  const SectionReader::Hint told = hint;
  SectionReader reader(root, "", problems, told);
  read_preset(root, config, reader);
  read_compat(root, config);
  config.visit(reader);
  reader.finish();
  refuse(problems);
  if (config.run.name.empty()) config.run.name = default_name(config.run.dir, name);
  fill_derived(config);
  return config;
}

Config load_config(const std::string& path, const std::vector<std::string>& sets,
                   const std::vector<std::string>& changes) {
  return parse_config(read_config_file(path), path, sets, changes);
}

void fill_derived(Config& config) {
  if (config.run.name.empty()) config.run.name = "run";
  if (config.run.dir.empty()) config.run.dir = "runs/" + config.run.name;
  fill_sizes(config.model);
  fill_budget(config.model, config.train);
}

}  // namespace anabranch
