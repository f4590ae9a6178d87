#include "runtime/sweep/choose.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>

#include "core/base/error.h"
#include "core/base/quote.h"
#include "runtime/config/number.h"
#include "runtime/config/validate.h"
#include "runtime/sweep/run_loss.h"

namespace anabranch {

namespace {

namespace fs = std::filesystem;

// The runs of one value.
struct Candidate {
  std::string text;
  double sum = 0;
  int64_t runs = 0;
  bool stopped = false;

  [[nodiscard]] double mean() const { return sum / static_cast<double>(runs); }
};

using Candidates = std::map<double, Candidate>;

std::string setting_of(const RecordedPoint& point, const std::string& key, const ChooseRule& rule) {
  std::string value = point.setting(key);
  if (!value.empty()) return value;
  throw config_error(rule.where, ": point ", point.id, " of the pilot ", rule.from, " has no ",
                     quote(key));
}

double number_of(const RecordedPoint& point, const ChooseRule& rule) {
  double value = 0;
  const std::string text = setting_of(point, rule.key, rule);
  if (parse_number(text, value)) return value;
  throw config_error(rule.where, ": ", rule.key, " of point ", point.id, " is ", quote(text),
                     ": expected a number to choose from");
}

// What keeps a run's last loss from counting; empty: nothing.
std::string fault_of(const RecordedPoint& point, const RunSoFar& run, LossKind by) {
  const StepReport* last = run.series.last_step();
  if (last == nullptr) return "has not begun";
  if (point.steps == 0) return "has a length that is not known";
  if (last->step < point.steps) return join("is at step ", last->step, " of ", point.steps);
  const auto loss = loss_at(run.series, by, point.batch_tokens);
  if (!loss) return "has no validation loss";
  return std::isfinite(*loss) ? "" : "has a loss that is not finite";
}

Chosen best_of(const Candidates& candidates) {
  const auto better = [](const auto& a, const auto& b) {
    if (a.second.stopped != b.second.stopped) return b.second.stopped;
    return !a.second.stopped && a.second.mean() < b.second.mean();
  };
  const auto best = std::min_element(candidates.begin(), candidates.end(), better);
  const bool edge = best == candidates.begin() || std::next(best) == candidates.end();
  return {best->second.text, best->second.mean(), best->second.runs, edge};
}

}  // namespace

Choices choose(const ChooseRule& rule, const SweepRecord& pilot,
               const std::vector<RunSoFar>& runs) {
  AB_CHECK(runs.size() == pilot.runs.size(), "one series a run");
  std::map<std::vector<std::string>, Candidates> groups;
  std::string faults;
  for (size_t r = 0; r < runs.size(); ++r) {
    const RecordedPoint& point = pilot.points[pilot.runs[r].point];
    std::vector<std::string> labels;
    for (const std::string& name : rule.per) labels.push_back(setting_of(point, name, rule));
    Candidate& candidate = groups[labels][number_of(point, rule)];
    candidate.text = point.setting(rule.key);
    candidate.stopped = candidate.stopped || runs[r].stopped;
    if (runs[r].stopped) continue;
    const std::string fault = fault_of(point, runs[r], rule.by);
    if (!fault.empty()) {
      faults += "\n  " + pilot.runs[r].id + " " + fault;
      continue;
    }
    candidate.sum += *loss_at(runs[r].series, rule.by, point.batch_tokens);
    ++candidate.runs;
  }
  if (!faults.empty()) {
    throw config_error(rule.where, ": ", rule.key, " cannot be chosen from ", rule.from,
                       " yet: run it to its end", faults);
  }
  Choices choices;
  for (const auto& [labels, candidates] : groups) {
    const auto stopped = [](const auto& each) { return each.second.stopped; };
    if (std::all_of(candidates.begin(), candidates.end(), stopped)) {
      std::string group;
      for (const std::string& label : labels) group += " " + label;
      throw config_error(rule.where, ": ", rule.key, " cannot be chosen for", group,
                         ": the pilot's own stop_early ended all its runs there; compare them ",
                         "among themselves, by its `per`");
    }
    choices[labels] = best_of(candidates);
  }
  return choices;
}

Choices choose_from(const ChooseRule& rule, const std::string& folder) {
  SweepRecord pilot = read_record(folder);
  std::vector<RunSoFar> runs;
  for (const SweepRun& run : pilot.runs) {
    const fs::path directory = fs::path(folder) / run.id;
    RunSoFar& so_far = runs.emplace_back();
    std::error_code ignored;
    so_far.stopped = fs::exists(directory / kStoppedEarly, ignored);
    int64_t& steps = pilot.points[run.point].steps;  // of a run of epochs, its own file knows
    const fs::path config = directory / "config.yaml";
    if (steps == 0 && fs::exists(config, ignored)) {
      steps = planned_steps(config.string());
    }
    const fs::path metrics = directory / "metrics.jsonl";
    if (fs::exists(metrics, ignored)) so_far.series = read_series(metrics.string());
  }
  return choose(rule, pilot, runs);
}

}  // namespace anabranch
