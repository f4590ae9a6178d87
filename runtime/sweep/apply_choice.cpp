#include "runtime/sweep/apply_choice.h"

#include <algorithm>
#include <filesystem>
#include <optional>

#include "core/base/error.h"
#include "core/base/quote.h"
#include "runtime/config/nearest.h"
#include "runtime/config/number.h"
#include "runtime/sweep/choose.h"

namespace anabranch {

namespace {

std::vector<std::string> labels_of(const SweepDraft& draft, const ChooseRule& rule) {
  std::vector<std::string> labels, known{"family"};
  for (const YamlNode& node : draft.settings) known.push_back(node.key);
  for (const std::string& name : rule.per) {
    const auto at = std::ranges::find(draft.settings, name, &YamlNode::key);
    if (at == draft.settings.end() && name != "family") {
      throw config_error(rule.where, ": choose.per: point ", draft.id, " has no ", quote(name),
                         nearest_or_known(name, known, "", "it has "));
    }
    labels.push_back(name == "family" ? draft.group->family : setting_text(*at));
  }
  return labels;
}

void check_free(const SweepDraft& draft, const ChooseRule& rule) {
  const auto given = std::ranges::find(draft.settings, rule.key, &YamlNode::key);
  if (given == draft.settings.end()) return;
  throw config_error(given->where, ": ", rule.key, " of point ", draft.id,
                     " is given, and chosen at ", rule.where, ": leave one of them out");
}

// "size 85m"; "all points"
std::string text_of(const ChooseRule& rule, const std::vector<std::string>& labels) {
  std::string text;
  for (size_t i = 0; i < labels.size(); ++i) {
    text += join(i == 0 ? "" : ", ", rule.per[i], " ", labels[i]);
  }
  return text.empty() ? "all points" : text;
}

std::string sentence(const ChooseRule& rule, const std::vector<std::string>& labels,
                     const Chosen& chosen) {
  std::string text = join(rule.key, " of ", text_of(rule, labels), " is ", chosen.value, ": ",
                          word_of(rule.by), " ", number_text(chosen.loss), ", the mean of ",
                          counted(chosen.runs, "run"), " of ", rule.from);
  if (chosen.at_edge) {
    text +=
        "; no value on one side of it was tried: extend the pilot's grid, a better may lie there";
  }
  return text;
}

}  // namespace

void apply_choice(const ChooseRule& rule, const SweepOptions& options,
                  std::vector<SweepDraft>& drafts, Sweep& sweep) {
  namespace fs = std::filesystem;
  for (const SweepDraft& draft : drafts) {
    check_free(draft, rule);
    (void)labels_of(draft, rule);
  }
  const std::string pilot =
      fs::path(rule.from).stem().string() + (options.scale == SweepScale::kTiny ? "-tiny" : "");
  const std::string folder = options.runs + "/" + pilot;
  std::error_code ignored;
  const auto wait = [&](const std::string& why) {
    sweep.unchosen += (sweep.unchosen.empty() ? "" : "\n") + why;
  };
  if (!fs::exists(folder + "/sweep.json", ignored)) {
    return wait(join(rule.where, ": ", rule.key, " is still what ", sweep.base, " has: the pilot ",
                     rule.from, " has not been run (", folder, " has no sweep.json)"));
  }
  Choices choices;
  try {
    choices = choose_from(rule, folder);
  } catch (const Error& error) {
    if (error.fault() != Fault::kConfig) throw;
    return wait(error.what());
  }
  for (const auto& [labels, chosen] : choices) {
    sweep.chosen.push_back(sentence(rule, labels, chosen));
  }
  for (SweepDraft& draft : drafts) {
    const std::vector<std::string> labels = labels_of(draft, rule);
    const auto found = choices.find(labels);
    if (found == choices.end()) {
      throw config_error(rule.where, ": the pilot ", rule.from, " has no points of ",
                         text_of(rule, labels), ", and point ", draft.id, " is one");
    }
    YamlNode value;
    value.kind = YamlNode::Kind::kScalar;
    value.key = rule.key;
    value.where = rule.where;
    value.value = found->second.value;
    draft.settings.push_back(std::move(value));
  }
}

}  // namespace anabranch
