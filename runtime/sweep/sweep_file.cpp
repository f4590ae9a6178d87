#include "runtime/sweep/sweep_file.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "core/base/error.h"
#include "core/base/quote.h"
#include "runtime/config/config.h"
#include "runtime/config/nearest.h"
#include "runtime/config/number.h"
#include "runtime/config/section_reader.h"

namespace anabranch {

namespace {

using Kind = YamlNode::Kind;
using Words = std::vector<std::string>;

const Words kShared{"set", "zip", "grid", "list"};
const Words kOfGroup{"family", "name", "match_macs", "skip", "when"};
const Words kOfFile{"base", "vocabulary", "seeds", "groups", "stop_early", "choose"};

bool holds(const Words& words, const std::string& word) {
  return std::ranges::find(words, word) != words.end();
}

Words joined(Words a, const Words& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// What a value is, for messages.
std::string found(const YamlNode& node) {
  switch (node.kind) {
    case Kind::kNull:
      return "empty";
    case Kind::kMap:
      return "a map";
    case Kind::kList:
      return node.items.empty() ? "an empty list" : "a list";
    case Kind::kScalar:
      break;
  }
  return quote(node.value);
}

void require(const YamlNode& node, const std::string& key, bool holds_true,
             const std::string& expected) {
  if (holds_true) return;
  throw config_error(node.where, ": ", key, " is ", found(node), ", must be ", expected);
}

void check_keys(const YamlNode& map, const Words& known) {
  for (const YamlNode& item : map.items) {
    if (holds(known, item.key)) continue;
    throw config_error(item.where, ": unknown key ", quote(item.key),
                       nearest_or_known(item.key, known));
  }
}

int64_t whole(const YamlNode& node, const std::string& key, int64_t min) {
  int64_t value = 0;
  const bool reads = node.kind == Kind::kScalar && !node.quoted && parse_number(node.value, value);
  require(node, key, reads && value >= min && value <= kMaxCount,
          join("a whole number of ", min, " or more"));
  return value;
}

std::string word(const YamlNode& node, const std::string& key) {
  require(node, key, node.kind == Kind::kScalar && !node.value.empty(), "a word");
  return node.value;
}

// The sections of a configuration and its keys outside of them.
class TopKeys {
 public:
  template <class... Rest>
  void operator()(const char* key, Rest&&... /*field, bounds, help*/) {
    names.emplace_back(key);
  }

  Words names;
};

void check_setting_key(const YamlNode& node) {
  const std::string& key = node.key;
  if (key == "run.name" || key == "run.dir" || key == "run.seed") {
    throw config_error(node.where, ": ", key, " is each run's own: the names follow from `name`, ",
                       "the seeds are listed under `seeds`");
  }
  TopKeys top;
  Config config;
  config.visit(top);
  if (!holds(top.names, key) && key != "family") return;
  throw config_error(node.where, ": ", quote(key), " cannot be a label: it has a meaning already",
                     key == "family" ? "" : "; a configuration's key is written section.key");
}

// One value of a key: a scalar, or a list of them.
YamlNode setting(YamlNode value, const std::string& key) {
  const bool flat = std::ranges::all_of(
      value.items, [](const YamlNode& item) { return item.kind == Kind::kScalar; });
  require(value, key, value.kind == Kind::kScalar || (value.kind == Kind::kList && flat),
          "a value or a list of values");
  value.key = key;
  check_setting_key(value);
  return value;
}

std::vector<YamlNode> settings(const YamlNode& map, const std::string& what) {
  require(map, what, map.kind == Kind::kMap && !map.items.empty(), "a map of keys to values");
  std::vector<YamlNode> all;
  for (const YamlNode& item : map.items) all.push_back(setting(item, item.key));
  return all;
}

const std::vector<YamlNode>& values(const YamlNode& list, const std::string& key) {
  require(list, key, list.kind == Kind::kList && !list.items.empty(), "a list of values");
  return list.items;
}

SweepAxis zipped(const YamlNode& zip) {
  require(zip, "zip", zip.kind == Kind::kMap && !zip.items.empty(), "a map of keys to lists");
  SweepAxis axis;
  const size_t length = values(zip.items[0], zip.items[0].key).size();
  axis.choices.resize(length);
  for (const YamlNode& list : zip.items) {
    const auto& all = values(list, list.key);
    if (all.size() != length) {
      throw config_error(list.where, ": zip.", list.key, " has ", counted(std::ssize(all), "value"),
                         ", and ", zip.items[0].key, " has ", length,
                         ": lists in zip are of one length");
    }
    for (size_t i = 0; i < length; ++i) axis.choices[i].push_back(setting(all[i], list.key));
  }
  return axis;
}

void add_axes(std::vector<SweepAxis>& axes, const YamlNode& map) {
  for (const YamlNode& item : map.items) {
    if (item.key == "zip") axes.push_back(zipped(item));
    if (item.key == "list") {
      SweepAxis& axis = axes.emplace_back();
      for (const YamlNode& each : values(item, "list")) {
        axis.choices.push_back(settings(each, "an entry of list"));
      }
    }
    if (item.key != "grid") continue;
    require(item, "grid", item.kind == Kind::kMap && !item.items.empty(), "a map of keys to lists");
    for (const YamlNode& list : item.items) {
      SweepAxis& axis = axes.emplace_back();
      for (const YamlNode& value : values(list, list.key)) {
        axis.choices.push_back({setting(value, list.key)});
      }
    }
  }
}

std::vector<SweepRule> rules(const YamlNode& node, const std::string& key) {
  std::vector<SweepRule> all;
  for (const YamlNode& each : values(node, key)) {
    require(each, "an entry of " + key, each.kind == Kind::kMap && !each.items.empty(),
            "a map of keys to values");
    all.push_back({each.where, each.items});
  }
  return all;
}

// No key is set twice for one point: a later one would silently win.
void check_once(const SweepGroup& group) {
  std::vector<const YamlNode*> seen;
  const auto check = [&](const YamlNode& node, size_t before) {
    for (size_t i = 0; i < before; ++i) {
      if (seen[i]->key != node.key) continue;
      throw config_error(node.where, ": ", node.key, " is given twice for the points of ",
                         group.family, "; first at ", seen[i]->where);
    }
    seen.push_back(&node);
  };
  for (const YamlNode& node : group.set) check(node, seen.size());
  for (const SweepAxis& axis : group.axes) {
    const size_t before = seen.size();  // the choices of one axis may set the same keys
    for (const auto& choice : axis.choices) {
      for (const YamlNode& node : choice) check(node, before);
    }
  }
}

// What a map of the file says of a group, over what the file says of all.
SweepGroup group_of(const YamlNode& map, SweepGroup group) {
  group.where = map.where;
  for (const YamlNode& item : map.items) {
    if (item.key == "family") group.family = word(item, "family");
    if (item.key == "name") group.name = {item.where, word(item, "name")};
    if (item.key == "match_macs") group.match_macs = {item.where, word(item, "match_macs")};
    if (item.key == "skip") group.skip = rules(item, "skip");
    if (item.key == "when") group.when = rules(item, "when");
    if (item.key != "set") continue;
    for (YamlNode& each : settings(item, "set")) group.set.push_back(std::move(each));
  }
  add_axes(group.axes, map);
  check_once(group);
  return group;
}

void read_groups(SweepFile& file, const YamlNode& root) {
  const YamlNode* groups = root.find("groups");
  SweepGroup shared;
  shared.family = file.name;
  if (groups == nullptr) {
    check_keys(root, joined(joined(kOfFile, kShared), kOfGroup));
    file.groups.push_back(group_of(root, shared));
    return;
  }
  for (const YamlNode& item : root.items) {
    if (!holds(kOfGroup, item.key)) continue;
    throw config_error(item.where, ": ", item.key, " stands beside groups; it belongs into each ",
                       "of them");
  }
  check_keys(root, joined(kOfFile, kShared));
  shared = group_of(root, shared);
  for (const YamlNode& map : values(*groups, "groups")) {
    require(map, "an entry of groups", map.kind == Kind::kMap, "a map");
    check_keys(map, joined(kOfGroup, kShared));
    if (map.find("family") == nullptr) {
      throw config_error(map.where,
                         ": a group has no family: give the row of the table that it is");
    }
    file.groups.push_back(group_of(map, shared));
  }
}

// A map of the file that has a fixed set of keys.
template <class S>
S section(const YamlNode& map, const std::string& name) {
  require(map, name, map.kind == Kind::kMap && !map.items.empty(), "a map of keys to values");
  S section;
  std::vector<std::string> problems;
  const SectionReader::Hint no_hint;
  SectionReader reader(map, name + ".", problems, no_hint);
  section.visit(reader);
  reader.finish();
  refuse(problems);
  return section;
}

EarlyStop early_stop(const YamlNode& map) {
  EarlyStop rule = section<EarlyStop>(map, "stop_early");
  if ((rule.after_fraction > 0) == (rule.after_tokens > 0)) {
    throw config_error(map.where, ": stop_early needs either after_fraction or after_tokens, from ",
                       "where on points are compared");
  }
  if (rule.keep == 0 || rule.keep == 1) {
    throw config_error(map.where, ": stop_early.keep is ", rule.keep, ", must lie between 0 and 1");
  }
  return rule;
}

std::vector<ChooseRule> choose_rules(const YamlNode& list, const std::filesystem::path& folder) {
  std::vector<ChooseRule> rules;
  for (const YamlNode& map : values(list, "choose")) {
    ChooseRule rule = section<ChooseRule>(map, "choose");
    rule.where = map.where;
    if (!is_config_key(rule.key)) {
      throw config_error(map.where, ": choose.key is ", quote(rule.key),
                         ", must be a configuration's key, as section.key");
    }
    if (rule.from.empty()) throw config_error(map.where, ": choose.from is not set: the pilot");
    rule.from = (folder / rule.from).lexically_normal().string();
    std::error_code ignored;
    if (!std::filesystem::is_regular_file(rule.from, ignored)) {
      throw config_error(map.where, ": choose.from ", rule.from, " is not a file");
    }
    rules.push_back(std::move(rule));
  }
  return rules;
}

}  // namespace

std::string setting_text(const YamlNode& value) {
  if (value.kind != Kind::kList) return value.value;
  std::string text;
  for (const YamlNode& item : value.items) text += (text.empty() ? "" : "_") + item.value;
  return text;
}

bool is_config_key(const std::string& key) { return key.find('.') != std::string::npos; }

SweepFile parse_sweep(const std::string& text, const std::string& path) {
  namespace fs = std::filesystem;
  const YamlNode root = parse_yaml(text, path);
  if (root.kind != Kind::kMap) throw config_error(path, ": expected a map with the key base");
  SweepFile file;
  file.path = path;
  file.name = fs::path(path).stem().string();
  read_groups(file, root);

  const YamlNode* base = root.find("base");
  if (base == nullptr) throw config_error(path, ": base is not set: give a configuration's path");
  const fs::path folder = fs::path(path).parent_path();
  file.base = (folder / word(*base, "base")).lexically_normal().string();
  std::error_code ignored;
  if (!fs::is_regular_file(file.base, ignored)) {
    throw config_error(base->where, ": base ", file.base, " is not a file");
  }
  const YamlNode* vocabulary = root.find("vocabulary");
  if (vocabulary == nullptr) {
    throw config_error(path, ": vocabulary is not set: give the size to count parameters for");
  }
  file.vocabulary = whole(*vocabulary, "vocabulary", 1);
  if (const YamlNode* stop = root.find("stop_early")) file.stop_early = early_stop(*stop);
  if (const YamlNode* list = root.find("choose")) file.choose = choose_rules(*list, folder);
  const YamlNode* seeds = root.find("seeds");
  if (seeds == nullptr) return file;
  std::set<int64_t> seen;
  for (const YamlNode& seed : values(*seeds, "seeds")) {
    file.seeds.push_back(whole(seed, "seeds", 0));
    require(seed, "seeds", seen.insert(file.seeds.back()).second, "different numbers");
  }
  return file;
}

SweepFile load_sweep(const std::string& path) { return parse_sweep(read_config_file(path), path); }

}  // namespace anabranch
