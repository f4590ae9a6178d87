#include "runtime/sweep/expand.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <string_view>

#include "core/base/error.h"
#include "core/base/quote.h"
#include "runtime/config/nearest.h"
#include "runtime/config/section_reader.h"
#include "runtime/config/validate.h"
#include "runtime/models/registry.h"
#include "runtime/sweep/apply_choice.h"
#include "runtime/sweep/sweep_points.h"
#include "runtime/sweep/tiny.h"

namespace anabranch {

namespace {

// What lies in a sweep's directory beside those of its runs.
constexpr std::array<std::string_view, 6> kOwnFiles{"arrays", "claims",     "configs",
                                                    "lock",   "sweep.json", "targets"};
constexpr size_t kLongestId = 150;  // a file's name with what is added

// Where among the points each id is.
using Places = std::map<std::string, size_t>;

void check_sets(const std::vector<std::string>& sets) {
  for (const std::string& set : sets) {
    for (const char* own : {"run.name=", "run.dir=", "run.seed="}) {
      if (set.starts_with(own)) {
        throw usage_error("--set ", set, ": each run of a sweep has its own; leave it out");
      }
    }
  }
}

Config config_of(const SweepDraft& draft, const YamlNode& base, const std::string& name,
                 const SweepOptions& options) {
  YamlNode root = base;
  if (root.find("run") != nullptr) {  // each run has its own of these
    std::erase_if(root.find("run")->items,
                  [](const YamlNode& key) { return key.key == "name" || key.key == "dir"; });
  }
  for (const YamlNode& setting : draft.settings) {
    if (is_config_key(setting.key)) set_yaml(root, setting.key, setting);
  }
  if (options.scale == SweepScale::kFull) {
    for (const std::string& set : options.sets) set_yaml(root, set);
    return read_config(root, name);
  }
  Config config = read_config(root, name);
  make_tiny(config);
  return parse_config(dump_config(config), name, options.sets);
}

// Adds which point it is to what is wrong with it.
template <class F>
auto of_point(const SweepDraft& draft, F&& f) {
  try {
    return f();
  } catch (const Error& error) {
    throw Error(error.fault(), join(draft.group->where, ": point ", draft.id, ": ", error.what()));
  }
}

SweepPoint point_of(const SweepDraft& draft, Config config, int64_t vocabulary) {
  return of_point(draft, [&] {
    config.run = {draft.id, "", config.run.seed};
    validate(config);
    (void)plan_batch(config, 1);
    SweepPoint point{.id = draft.id,
                     .family = draft.group->family,
                     .where = draft.group->where,
                     .matches = draft.matches,
                     .settings = {},
                     .config = std::move(config),
                     .cost = {}};
    for (const YamlNode& setting : draft.settings) {
      point.settings.emplace_back(setting.key, setting_text(setting));
    }
    point.cost = make_model(point.config, vocabulary)->cost();
    return point;
  });
}

// The configuration of a point that has the multiply-adds of another.
Config matched(const SweepDraft& draft, Config config, const Sweep& sweep, const Places& places) {
  const SweepPattern& pattern = draft.group->match_macs;
  for (const YamlNode& setting : draft.settings) {
    if (setting.key == "model.ffn_width") {
      throw config_error(setting.where, ": model.ffn_width follows from match_macs; leave it out");
    }
  }
  const auto target = places.find(draft.matches);
  if (target == places.end()) {
    std::vector<std::string> ids;
    for (const SweepPoint& point : sweep.points) ids.push_back(point.id);
    throw config_error(pattern.where, ": no point to match is called ", quote(draft.matches),
                       nearest_or_known(draft.matches, ids, "", ""));
  }
  const double macs = sweep.points[target->second].cost.macs();
  config.model.ffn_width =
      of_point(draft, [&] { return width_for_macs(config, sweep.vocabulary, macs); });
  return config;
}

void check_ids(const std::vector<SweepDraft>& drafts) {
  std::map<std::string, std::string> seen;
  for (const SweepDraft& draft : drafts) {
    if (draft.id.size() > kLongestId) {
      throw config_error(draft.group->where, ": the id ", quote(draft.id.substr(0, 40)),
                         "... is longer than ", kLongestId, " bytes: give a shorter name");
    }
    if (std::ranges::find(kOwnFiles, draft.id) != kOwnFiles.end()) {
      throw config_error(draft.group->where, ": the id ", draft.id, " is that of a file which the ",
                         "sweep's directory has for itself: give another name");
    }
    const auto [twin, is_new] = seen.emplace(draft.id, draft.group->where);
    if (is_new) continue;
    throw config_error(draft.group->where, ": two points are called ", draft.id, "; the first is ",
                       "of ", twin->second, ": name what tells them apart");
  }
}

// Points that match others come after those, and then take their places in the file's order.
void fill_points(Sweep& sweep, const std::vector<SweepDraft>& drafts, const YamlNode& base,
                 const SweepOptions& options) {
  Places places;
  const auto read = [&](const SweepDraft& draft) {
    return config_of(draft, base, sweep.base, options);
  };
  for (const SweepDraft& draft : drafts) {
    if (!draft.matches.empty()) continue;
    places[draft.id] = sweep.points.size();
    sweep.points.push_back(point_of(draft, read(draft), sweep.vocabulary));
  }
  std::vector<SweepPoint> ordered;
  ordered.reserve(drafts.size());
  for (const SweepDraft& draft : drafts) {
    ordered.push_back(
        draft.matches.empty()
            ? sweep.points[places.at(draft.id)]
            : point_of(draft, matched(draft, read(draft), sweep, places), sweep.vocabulary));
  }
  sweep.points = std::move(ordered);
}

// Every point has the labels and the losses that it is compared by.
void check_early_stop(const Sweep& sweep, SweepScale scale) {
  const EarlyStop& rule = *sweep.stop_early;
  for (const SweepPoint& point : sweep.points) {
    std::vector<std::string> known{"family"};
    for (const auto& [key, value] : point.settings) known.push_back(key);
    for (const std::string& key : rule.per) {
      if (std::ranges::find(known, key) != known.end()) continue;
      throw config_error(sweep.path, ": stop_early.per: point ", point.id, " has no ", quote(key),
                         nearest_or_known(key, known, "", "it has "));
    }
    const bool evaluates = point.config.eval.every_steps > 0 || scale == SweepScale::kTiny;
    if (rule.by == LossKind::kLoss || evaluates) continue;
    throw config_error(sweep.path, ": stop_early.by is validation_loss, and point ", point.id,
                       " has none before its end: set eval.every_steps, or by: loss");
  }
}

}  // namespace

int64_t width_for_macs(Config config, int64_t vocabulary, double macs) {
  const auto at = [&](int64_t width) {
    config.model.ffn_width = width;
    return make_model(config, vocabulary)->cost().macs();
  };
  constexpr int64_t kUnit = 8, kFar = 1008;
  const double least = at(kUnit);
  const double slope = (at(kFar) - least) / static_cast<double>(kFar - kUnit);
  const int64_t units = slope > 0 ? std::llround((macs - least) / slope / double{kUnit}) : -1;
  if (units < 0) {
    throw config_error("no model.ffn_width gives it ", std::llround(macs),
                       " multiply-adds a token: with one of ", kUnit, " it has ",
                       std::llround(least));
  }
  const int64_t width = kUnit + kUnit * units;
  const double off = std::abs(at(width) - macs);
  AB_CHECK(off <= slope * (kUnit / 2.0 + 0.01), "width ", width, " misses ", macs, " by ", off);
  return width;
}

Sweep expand_sweep(const SweepFile& file, const SweepOptions& options) {
  check_sets(options.sets);
  Sweep sweep;
  sweep.name = file.name + (options.scale == SweepScale::kTiny ? "-tiny" : "");
  sweep.path = file.path;
  sweep.base = file.base;
  sweep.vocabulary = options.vocabulary > 0 ? options.vocabulary : file.vocabulary;
  std::vector<SweepDraft> drafts;
  for (const SweepGroup& group : file.groups) {
    for (SweepDraft& draft : draft_points(group)) drafts.push_back(std::move(draft));
  }
  check_ids(drafts);
  for (const ChooseRule& rule : file.choose) apply_choice(rule, options, drafts, sweep);
  fill_points(sweep, drafts, parse_yaml(read_config_file(file.base), file.base), options);
  for (size_t p = 0; p < sweep.points.size(); ++p) {
    const SweepPoint& point = sweep.points[p];
    if (file.seeds.empty()) sweep.runs.push_back({point.id, p, point.config.run.seed});
    for (const int64_t seed : file.seeds) {
      sweep.runs.push_back({join(point.id, "-s", seed), p, seed});
    }
  }
  sweep.stop_early = file.stop_early;
  if (sweep.stop_early) check_early_stop(sweep, options.scale);
  return sweep;
}

void require_chosen(const Sweep& sweep) {
  if (sweep.unchosen.empty()) return;
  throw config_error(sweep.unchosen, "\nor give --unchosen, to train with what ", sweep.base,
                     " has");
}

Config run_config(const Sweep& sweep, const SweepRun& run) {
  Config config = sweep.points[run.point].config;
  config.run = {run.id, "runs/" + sweep.name + "/" + run.id, run.seed};
  return config;
}

}  // namespace anabranch
