#include "runtime/resume.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <sstream>

#include "core/base/error.h"
#include "parallel/topology.h"
#include "runtime/checkpoint/late_files.h"
#include "runtime/checkpoint/reader.h"
#include "runtime/config/number.h"
#include "runtime/config/validate_deterministic.h"
#include "runtime/rates.h"

namespace anabranch {
namespace {

using Tell = std::function<void(const std::string&)>;

std::string fact(const std::map<std::string, std::string>& facts, const std::string& name) {
  const auto found = facts.find(name);
  return found == facts.end() ? "" : found->second;
}

// Keys of the model that do not change the function that its weights stand for: how it trains.
constexpr std::array<std::string_view, 21> kFreeModelKeys{"preset",           "compat",
                                                          "recompute",        "context",
                                                          "dropout",          "bal_alpha",
                                                          "mix_order",        "aux_alpha",
                                                          "predictor_weight", "threshold_decay",
                                                          "causal_ratio",     "mask_first",
                                                          "mask_last",        "mlm_target",
                                                          "pool_sequences",   "kappa_router_grad",
                                                          "l2_alpha",         "l2_b",
                                                          "balance",          "z_loss",
                                                          "capacity_eval"};

// "key" and "value" of a line "  key: value  # default".
std::pair<std::string, std::string> parts_of(const std::string& line) {
  const size_t first = line.find_first_not_of(' '), colon = line.find(':');
  if (first == std::string::npos || colon == std::string::npos) return {line, ""};
  const size_t begin = line.find_first_not_of(' ', colon + 1);
  if (begin == std::string::npos) return {line.substr(first, colon - first), ""};
  const size_t end = line.find_last_not_of(' ', line.find(" #", begin));
  return {line.substr(first, colon - first), line.substr(begin, end - begin + 1)};
}

// The same weights under another heads or kernel would be another function, and no shape tells.
void check_model_key(const std::string& key, const std::string& was, const std::string& now) {
  if (std::ranges::find(kFreeModelKeys, key) != kFreeModelKeys.end()) return;
  throw config_error("model.", key, " is ", now, " but the checkpoint was trained with ", was,
                     ". Resume with that, or use another run.dir.");
}

// What differs between two resolved configurations of one family, which have the same keys.
// Throws Error (config) if they do not go with the same weights.
void tell_changes(const std::string& before, const std::string& after, const Tell& tell) {
  std::istringstream old_lines(before), new_lines(after);
  std::string section;
  for (std::string a, b; std::getline(old_lines, a) && std::getline(new_lines, b);) {
    const auto [key, was] = parts_of(a);
    if (!a.empty() && a.front() != ' ') section = was.empty() ? key + "." : "";
    if (a == b || a.starts_with('#')) continue;
    const std::string is = parts_of(b).second;
    if (was == is) continue;
    if (section == "model.") check_model_key(key, was, is);
    tell(join("configuration changed: ", section, key, ": ", was, " -> ", is));
  }
}

// A run that is given another length goes on by the schedule of that length. Where its steps so far
// followed another one, it is not what a run of this length from the start would be.
void tell_schedule(const Config& saved, const Config& config, int64_t step, const Tell& tell) {
  const Schedule before = schedule_of(saved), now = schedule_of(config);
  if (step == 0 || before.total_steps == 0 || now.begins_as(before, step)) return;
  const auto percent = [](double share) { return join(std::lround(100 * share), "%"); };
  tell(join("the learning rate was planned for ", counted(before.total_steps, "step"),
            " and now is for ", now.total_steps, ": it goes on from step ", step, " at ",
            percent(now(step)), " of its peak, after ", percent(before(step - 1)), "; a run of ",
            now.total_steps, " from the start would have had ", percent(now(step - 1))));
}

void compare(const Manifest& manifest, const ResumeWish& wish, const Tell& tell) {
  std::string before = fact(manifest.facts, "config");
  const std::string after = fact(wish.facts, "config");
  bool any_ranks = false;  // whether a run is the same on all of them
  if (!before.empty()) {
    const Config saved = parse_config(before, "checkpoint");
    const auto was = word_of(saved.model.type), is = word_of(wish.config.model.type);
    if (was != is) check_model_key("type", std::string(was), std::string(is));
    any_ranks = is_of_any_layout(saved) && is_of_any_layout(wish.config);
    tell_schedule(saved, wish.config, manifest.step, tell);
    before = dump_config(saved);  // with keys that are newer than the checkpoint
  }
  // Of what an imported one was trained with only the model matters.
  if (manifest.weights_only()) return tell_changes(before, after, [](const std::string&) {});
  for (const char* name : {"ranks", "threads", "build", "device"}) {
    if (any_ranks && name == std::string_view("ranks")) continue;
    const std::string saved = fact(manifest.facts, name), now = fact(wish.facts, name);
    if (saved.empty() || now.empty() || saved == now) continue;
    tell(join("other ", name, " than the checkpoint's: not bit-exact to a run never stopped"));
  }
  tell_changes(before, after, tell);
}

// What rank 0 sees is what all try, however late a shared disk shows it to the others.
std::vector<int64_t> common_steps(const CheckpointDirectory& checkpoints, Group& world) {
  std::string list;
  if (world.rank() == 0) {
    checkpoints.remove_remains();
    for (const int64_t step : checkpoints.steps()) list += std::to_string(step) + " ";
  }
  std::vector<int64_t> steps;
  std::istringstream words(gather_text(world, list).front());
  for (int64_t step = 0; words >> step;) steps.push_back(step);
  return steps;
}

// The names of tensors that not every rank has.
std::set<std::string> names_elsewhere(const std::vector<StateItem>& items, Group& world) {
  std::string mine;
  for (const StateItem& item : items) {
    if (item.holders.count != world.size()) mine += item.name + "\n";
  }
  return lines_of_all(world, mine);
}

}  // namespace

std::optional<Manifest> find_checkpoint(const ResumeWish& wish, Group& world,
                                        const std::vector<StateItem>& items, const Tell& tell) {
  const std::vector<int64_t> steps = common_steps(wish.checkpoints, world);
  if (wish.how == Resume::kNever && !steps.empty()) {
    throw usage_error(wish.run, " already holds checkpoints, the newest of step ", steps.front(),
                      "; resume it with --resume auto, or set run.dir");
  }
  if (wish.how == Resume::kMust && steps.empty()) {
    throw usage_error(wish.run, " holds no checkpoint to resume; use --resume auto to start");
  }
  const auto all_agree = [&](bool ok) {
    Tensor bad = Tensor::of<double>({1}, {ok ? 0.0 : 1.0});
    world.all_reduce_sum(bad).wait();
    return *bad.data<double>() == 0;
  };
  const std::set<std::string> elsewhere = names_elsewhere(items, world);
  const auto all_see = [&](const auto& checkpoint) { wait_until_all_see(checkpoint, world, tell); };
  auto manifest =
      load_newest(wish.checkpoints, steps, items, elsewhere, {all_agree, all_see}, tell);
  if (manifest) compare(*manifest, wish, tell);
  return manifest;
}

}  // namespace anabranch
