#include "launch/settings.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>

#include "core/base/error.h"
#include "core/base/quote.h"
#include "core/base/read_file.h"
#include "runtime/config/nearest.h"
#include "runtime/config/yaml.h"

namespace anabranch {
namespace {

using Kind = YamlNode::Kind;

enum class Form : uint8_t { kNumber, kWord, kList, kSwitch };

struct Key {
  std::string_view section, name, option;
  Form form;
};

constexpr std::array<Key, 20> kKeys{{
    {"text", "files", "FILES", Form::kList},
    {"text", "format", "--format", Form::kWord},
    {"text", "document", "--document", Form::kWord},
    {"text", "field", "--field", Form::kWord},
    {"text", "max_document_mib", "--max-document-mib", Form::kNumber},
    {"tokenizer", "name", "--name", Form::kWord},
    {"tokenizer", "vocab", "--vocab", Form::kNumber},
    {"tokenizer", "pattern", "--pattern", Form::kWord},
    {"tokenizer", "special", "--special", Form::kList},
    {"tokenizer", "max_characters", "--max-characters", Form::kNumber},
    {"tokenizer", "document_characters", "--document-characters", Form::kNumber},
    {"tokenizer", "min_count", "--min-count", Form::kNumber},
    {"shard", "source", "--source", Form::kList},
    {"shard", "weight", "--weight", Form::kList},
    {"shard", "validation", "--validation", Form::kNumber},
    {"shard", "validation_place", "--validation-place", Form::kWord},
    {"shard", "begin", "--begin", Form::kWord},
    {"shard", "shard_tokens", "--shard-tokens", Form::kNumber},
    {"shard", "skip_empty", "--skip-empty", Form::kSwitch},
    {"", "schema", "", Form::kNumber},
}};

bool is_input(const Key& key) {
  return key.name == "files" || key.name == "source" || key.name == "weight";
}

const char* expected_of(Form form) {
  switch (form) {
    case Form::kNumber:
      return "a number";
    case Form::kWord:
      return "a word";
    case Form::kList:
      return "a list of words";
    case Form::kSwitch:
      return "true or false";
  }
  return "";
}

bool has_form(const YamlNode& node, Form form) {
  const bool plain = node.kind == Kind::kScalar && !node.quoted;
  switch (form) {
    case Form::kNumber:
      return plain;
    case Form::kWord:
      return node.kind == Kind::kScalar;
    case Form::kList:
      return node.kind == Kind::kList && std::ranges::all_of(node.items, [](const YamlNode& item) {
               return item.kind == Kind::kScalar;
             });
    case Form::kSwitch:
      return plain && (node.value == "true" || node.value == "false");
  }
  return false;
}

// Sets the options of one verb from one file.
class Settings {
 public:
  Settings(CLI::App& verb, std::string section) : verb_(verb), section_(std::move(section)) {
    for (const Key& key : kKeys) {
      if (is_mine(key) && is_input(key)) told_ = told_ || count(key) > 0;
    }
  }

  void apply(const YamlNode& root) {
    for (const YamlNode& item : root.items) {
      if (item.key == "schema") {
        if (!has_form(item, Form::kNumber) || item.value != "1")
          problem(item, "schema", "must be 1");
      } else if (item.key != "text" && item.key != "tokenizer" && item.key != "shard") {
        unknown(item, "", {"schema", "text", "tokenizer", "shard"});
      } else if (item.kind != Kind::kMap) {
        problem(item, item.key, "must be a section of keys");
      } else {
        for (const YamlNode& entry : item.items) apply(item.key, entry);
      }
    }
    if (!problems_.empty()) throw Error(Fault::kConfig, problems_);
  }

 private:
  [[nodiscard]] bool is_mine(const Key& key) const {
    return key.section == "text" || key.section == section_;
  }

  [[nodiscard]] size_t count(const Key& key) const {
    return verb_.get_option(std::string(key.option))->count();
  }

  void apply(const std::string& section, const YamlNode& node) {
    const auto key = std::ranges::find_if(
        kKeys, [&](const Key& k) { return k.section == section && k.name == node.key; });
    if (key == kKeys.end()) {
      std::vector<std::string> known;
      for (const Key& k : kKeys) {
        if (k.section == section) known.emplace_back(k.name);
      }
      return unknown(node, section + ".", known);
    }
    const std::string name = section + "." + node.key;
    if (!has_form(node, key->form)) {
      return problem(node, name, join("must be ", expected_of(key->form)));
    }
    if (!is_mine(*key) || (is_input(*key) ? told_ : count(*key) > 0)) return;
    set(*key, name, node);
  }

  void set(const Key& key, const std::string& name, const YamlNode& node) {
    std::vector<std::string> values;
    for (const YamlNode& item : node.items) values.push_back(item.value);
    if (node.kind == Kind::kScalar) values.push_back(node.value);
    if (values.empty() || (key.form == Form::kSwitch && node.value == "false")) return;
    CLI::Option* option = verb_.get_option(std::string(key.option));
    try {
      option->add_result(values);
      option->run_callback();
    } catch (const Error& error) {
      std::string reason = error.what();
      const std::string place = std::string(key.option) + ": ";
      if (reason.starts_with(place)) reason.erase(0, place.size());
      problem(node, name, reason);
    }
  }

  void unknown(const YamlNode& node, const std::string& prefix,
               const std::vector<std::string>& known) {
    const std::string key = node.key.substr(0, kQuotedBytes);
    add(join(node.where, ": unknown key ", prefix, key, nearest_or_known(key, known, prefix)));
  }

  void problem(const YamlNode& node, const std::string& name, const std::string& what) {
    add(join(node.where, ": ", name, ": ", what));
  }

  void add(const std::string& line) { problems_ += (problems_.empty() ? "" : "\n") + line; }

  CLI::App& verb_;
  std::string section_;
  bool told_ = false;  // the command line says what to read
  std::string problems_;
};

std::string read_settings(const std::string& path) {
  try {
    return read_file(path);
  } catch (const Error& error) {
    throw config_error("--settings ", error.what());
  }
}

}  // namespace

void add_settings(CLI::App& verb, const std::string& section) {
  const auto apply = [&verb, section](const std::string& path) {
    const YamlNode root = parse_yaml(read_settings(path), path);
    if (root.kind != Kind::kMap) throw config_error(path, ": expected sections of keys");
    Settings(verb, section).apply(root);
  };
  verb.add_option_function<std::string>(
      "--settings", apply, "YAML file of these options (configs/data); those given here win");
}

}  // namespace anabranch
