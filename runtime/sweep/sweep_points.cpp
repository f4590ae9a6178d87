#include "runtime/sweep/sweep_points.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/base/quote.h"
#include "runtime/config/nearest.h"
#include "runtime/config/sections.h"

namespace anabranch {

namespace {

using Kind = YamlNode::Kind;

constexpr size_t kMostPoints = 20000;

const YamlNode* find(const std::vector<YamlNode>& settings, const std::string& key) {
  const auto at =
      std::ranges::find_if(settings, [&](const YamlNode& node) { return node.key == key; });
  return at != settings.end() ? &*at : nullptr;
}

Error no_such_key(const std::string& where, const std::string& key, const SweepDraft& draft) {
  std::vector<std::string> known;
  for (const YamlNode& node : draft.settings) known.push_back(node.key);
  return config_error(where, ": points of ", draft.group->family, " have no ", quote(key),
                      nearest_or_known(key, known, "", "they have "));
}

// A pattern with each {key} replaced by the point's value.
std::string filled(const SweepPattern& pattern, const SweepDraft& draft) {
  std::string text;
  for (size_t i = 0; i < pattern.text.size(); ++i) {
    if (pattern.text[i] != '{') {
      text += pattern.text[i];
      continue;
    }
    const size_t end = pattern.text.find('}', i);
    if (end == std::string::npos) {
      throw config_error(pattern.where, ": ", quote(pattern.text), " has a { without a }");
    }
    const std::string key = pattern.text.substr(i + 1, end - i - 1);
    const YamlNode* value = find(draft.settings, key);
    if (value == nullptr && key != "family") throw no_such_key(pattern.where, key, draft);
    text += value != nullptr ? setting_text(*value) : draft.group->family;
    i = end;
  }
  return text;
}

// What a value says of a point where there is no pattern: a label or a word as it is, a number
// behind the last part of its key.
std::string name_part(const YamlNode& value) {
  const std::string text = setting_text(value);
  const bool says_it = !text.empty() && text[0] >= 'A' && text != "true" && text != "false";
  if (!is_config_key(value.key) || says_it) return join("-", text);
  return join("-", value.key.substr(value.key.rfind('.') + 1), text);
}

std::string name_of(const SweepDraft& draft, const std::vector<size_t>& chosen) {
  const SweepGroup& group = *draft.group;
  std::string id = group.family;
  for (size_t a = 0; a < chosen.size(); ++a) {
    id += name_part(group.axes[a].choices[chosen[a]].front());
  }
  if (!group.name.text.empty()) id = filled(group.name, draft);
  const bool plain = id.find_first_not_of(kNameCharacters) == std::string::npos;
  if (!plain || id.empty() || id[0] == '.') {
    throw config_error(group.name.text.empty() ? group.where : group.name.where,
                       ": a point would be called ", quote(id),
                       "; names are letters, digits, '.', '_' and '-': give a name pattern");
  }
  return id;
}

bool matches(const SweepRule& rule, const SweepDraft& draft) {
  return std::ranges::all_of(rule.conditions, [&](const YamlNode& condition) {
    const YamlNode* value = find(draft.settings, condition.key);
    if (value == nullptr) throw no_such_key(condition.where, condition.key, draft);
    const std::string text = setting_text(*value);
    if (condition.kind != Kind::kList || value->kind == Kind::kList) {
      return setting_text(condition) == text;
    }
    return std::ranges::any_of(condition.items,
                               [&](const YamlNode& item) { return setting_text(item) == text; });
  });
}

// Whether one of the rules holds; counts for each how often it did.
bool any_matches(const std::vector<SweepRule>& rules, const SweepDraft& draft,
                 std::vector<size_t>& hits) {
  bool any = false;
  for (size_t r = 0; r < rules.size(); ++r) {
    const bool hit = matches(rules[r], draft);
    hits[r] += hit ? 1 : 0;
    any = any || hit;
  }
  return any;
}

void check_hits(const std::vector<SweepRule>& rules, const std::vector<size_t>& hits,
                const std::string& family) {
  for (size_t r = 0; r < rules.size(); ++r) {
    if (hits[r] > 0) continue;
    throw config_error(rules[r].where, ": this rule holds for no point of ", family,
                       ": correct it, or leave it out");
  }
}

// Moves on to the next combination, the last axis first. Returns false after the last.
bool next(std::vector<size_t>& chosen, const std::vector<SweepAxis>& axes) {
  for (size_t a = axes.size(); a-- > 0;) {
    if (++chosen[a] < axes[a].choices.size()) return true;
    chosen[a] = 0;
  }
  return false;
}

}  // namespace

std::vector<SweepDraft> draft_points(const SweepGroup& group) {
  size_t product = 1;
  for (const SweepAxis& axis : group.axes) {
    product *= axis.choices.size();
    if (product <= kMostPoints) continue;
    throw config_error(group.where, ": more than ", kMostPoints, " points of ", group.family,
                       ": cut its lists, or make two files of it");
  }
  std::vector<SweepDraft> drafts;
  std::vector<size_t> chosen(group.axes.size(), 0);
  std::vector<size_t> skipped(group.skip.size(), 0), kept(group.when.size(), 0);
  do {
    SweepDraft draft{&group, "", "", group.set};
    for (size_t a = 0; a < chosen.size(); ++a) {
      const auto& choice = group.axes[a].choices[chosen[a]];
      draft.settings.insert(draft.settings.end(), choice.begin(), choice.end());
    }
    if (any_matches(group.skip, draft, skipped)) continue;
    if (!group.when.empty() && !any_matches(group.when, draft, kept)) continue;
    draft.id = name_of(draft, chosen);
    if (!group.match_macs.text.empty()) draft.matches = filled(group.match_macs, draft);
    drafts.push_back(std::move(draft));
  } while (next(chosen, group.axes));
  check_hits(group.skip, skipped, group.family);
  check_hits(group.when, kept, group.family);
  if (drafts.empty())
    throw config_error(group.where, ": no points of ", group.family,
                       " are left: loosen its skip or when");
  return drafts;
}

}  // namespace anabranch
