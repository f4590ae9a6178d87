#include <algorithm>
#include <functional>
#include <type_traits>

#include "core/base/error.h"
#include "runtime/config/config.h"
#include "runtime/config/kappa_recipe.h"
#include "runtime/config/nearest.h"
#include "runtime/config/value_text.h"

namespace anabranch {

namespace {

// What there is to know of a key.
struct KeyInfo {
  std::string section, key, value, range, help;
};

std::string range_text(const auto& min, const auto& max) {
  const std::string low = value_text(min);
  if constexpr (std::is_same_v<std::decay_t<decltype(max)>, int64_t>) {
    if (max == kMaxCount) return ">= " + low;
  }
  return low + " to " + value_text(max);
}

// Lists all keys of a configuration.
class KeyList {
 public:
  explicit KeyList(std::string section = "") : section_(std::move(section)) {}

  template <class S>
  void operator()(const char* key, S& section) {
    KeyList inner(key);
    section.visit(inner);
    keys.insert(keys.end(), inner.keys.begin(), inner.keys.end());
  }

  template <class T>
  void operator()(const char* key, T& field, T min, T max, const char* help) {
    add(key, field, range_text(min, max), help);
  }

  void operator()(const char* key, AutoInt& field, int64_t min, int64_t max, const char* help) {
    add(key, field, "auto or " + range_text(min, max), help);
  }

  void operator()(const char* key, std::vector<int64_t>& field, int64_t min, int64_t max,
                  const char* help) {
    add(key, field, "list of " + range_text(min, max), help);
  }

  template <class T>
  void operator()(const char* key, T& field, const char* help) {
    std::string range = "text";
    if constexpr (std::is_enum_v<T>) {
      const auto words = words_of(T{});
      range = word_list({words.begin(), words.end()});
    } else if constexpr (std::is_same_v<T, bool>) {
      range = "true, false";
    } else if constexpr (!std::is_same_v<T, std::string>) {
      range = "list";
    }
    if (section_ == "model" && std::string(key) == "preset") range = word_list(model_presets());
    add(key, field, range, help);
  }

  std::vector<KeyInfo> keys;

 private:
  void add(const char* key, const auto& field, std::string range, const char* help) {
    keys.push_back({section_, key, value_text(field), std::move(range), help});
  }

  std::string section_;
};

std::vector<KeyInfo> list_keys(Config config) {
  KeyList list;
  config.visit(list);
  return list.keys;
}

bool same_key(const KeyInfo& a, const KeyInfo& b) {
  return a.section == b.section && a.key == b.key && a.value == b.value && a.help == b.help;
}

// The keys of all families with their defaults; after the words of `help` the families that have
// them, if not all do.
std::vector<KeyInfo> list_all_keys() {
  std::vector<KeyInfo> all;
  std::vector<std::vector<std::string>> families;
  const auto words = words_of(ModelType{});
  for (size_t i = 0; i < words.size(); ++i) {
    Config config;
    config.model.type = static_cast<ModelType>(i);
    for (const KeyInfo& info : list_keys(config)) {
      KeyInfo key = info;
      if (key.section == "model" && key.key == "type") key.value = words[0];
      const auto at = std::ranges::find_if(all, [&](const KeyInfo& k) { return same_key(k, key); });
      if (at != all.end()) {
        families[static_cast<size_t>(at - all.begin())].emplace_back(words[i]);
        continue;
      }
      size_t place = all.size();  // behind its section
      while (place > 0 && all[place - 1].section != key.section) --place;
      if (place == 0) place = all.size();
      families.insert(families.begin() + static_cast<std::ptrdiff_t>(place), 1,
                      {std::string(words[i])});
      all.insert(all.begin() + static_cast<std::ptrdiff_t>(place), key);
    }
  }
  for (size_t k = 0; k < all.size(); ++k) {
    if (families[k].size() < words.size()) all[k].help += " -- " + word_list(families[k]);
  }
  return all;
}

// The defaults that this configuration's changed keys are to be compared with.
Config defaults_for(const Config& config) {
  Config defaults;
  apply_preset(defaults.model, config.model.preset);
  apply_recipe(defaults, config.model.preset, config.model);
  defaults.model.type = config.model.type;  // so that both have the same keys
  apply_compat(defaults.model.moep, config.model.moep.compat);
  defaults.run.name = config.run.name;
  fill_derived(defaults);
  return defaults;
}

void pad(std::string& line, size_t width) {
  if (line.size() < width) line.append(width - line.size(), ' ');
}

}  // namespace

std::string dump_config(const Config& config, const std::vector<std::string>& header) {
  std::string text;
  for (std::string line : header) {
    std::replace_if(
        line.begin(), line.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
    text += "# " + line + "\n";
  }
  const std::vector<KeyInfo> keys = list_keys(config);
  const std::vector<KeyInfo> defaults = list_keys(defaults_for(config));
  std::string section;
  for (size_t i = 0; i < keys.size(); ++i) {
    if (keys[i].section != section) {
      section = keys[i].section;
      text += section + ":\n";
    }
    std::string line = (section.empty() ? "" : "  ") + keys[i].key + ": " + keys[i].value;
    if (keys[i].value != defaults[i].value) {
      pad(line, 32);
      line += "  # default " + defaults[i].value;
    }
    text += line + "\n";
  }
  return text;
}

std::string config_help() {
  std::string text;
  std::string section;
  for (const KeyInfo& info : list_all_keys()) {
    if (info.section != section) {
      section = info.section;
      text += "\n" + section + ":\n";
    }
    std::string line = (section.empty() ? "" : "  ") + info.key;
    pad(line, 22);
    line += " [" + info.value + "]";
    pad(line, 40);
    text += line + " " + info.help + " (" + info.range + ")\n";
  }
  return text;
}

std::string config_table() {
  std::string text = "| key | default | values | what it does |\n|---|---|---|---|\n";
  for (const KeyInfo& info : list_all_keys()) {
    const std::string name = info.section.empty() ? info.key : info.section + "." + info.key;
    text += "| `" + name + "` | `" + info.value + "` | " + info.range + " | " + info.help + " |\n";
  }
  return text;
}

}  // namespace anabranch
