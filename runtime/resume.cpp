#include "runtime/resume.h"

#include <sstream>

#include "core/base/error.h"
#include "parallel/topology.h"
#include "runtime/checkpoint/reader.h"

namespace anabranch {
namespace {

using Tell = std::function<void(const std::string&)>;

std::string fact(const std::map<std::string, std::string>& facts, const std::string& name) {
  const auto found = facts.find(name);
  return found == facts.end() ? "" : found->second;
}

// The same weights under another of these would be another function, and no shape tells.
void check_model(const ModelConfig& saved, const ModelConfig& now) {
  const auto differs = [](const char* key, const auto& a, const auto& b) {
    if (a == b) return;
    throw config_error("model.", key, " is ", b, " but the checkpoint was trained with ", a,
                       ". Resume with that, or use another run.dir.");
  };
  differs("type", word_of(saved.type), word_of(now.type));
  differs("heads", saved.heads, now.heads);
  differs("gelu", word_of(saved.gelu), word_of(now.gelu));
  differs("norm_eps", saved.norm_eps, now.norm_eps);
}

// "key" and "value" of a line "  key: value  # default".
std::pair<std::string, std::string> parts_of(const std::string& line) {
  const size_t first = line.find_first_not_of(' '), colon = line.find(':');
  if (first == std::string::npos || colon == std::string::npos) return {line, ""};
  const size_t begin = line.find_first_not_of(' ', colon + 1);
  if (begin == std::string::npos) return {line.substr(first, colon - first), ""};
  const size_t end = line.find_last_not_of(' ', line.find(" #", begin));
  return {line.substr(first, colon - first), line.substr(begin, end - begin + 1)};
}

// What differs between two resolved configurations, which have the same keys.
void tell_changes(const std::string& before, const std::string& after, const Tell& tell) {
  std::istringstream old_lines(before), new_lines(after);
  std::string section;
  for (std::string a, b; std::getline(old_lines, a) && std::getline(new_lines, b);) {
    const auto [key, was] = parts_of(a);
    if (!a.empty() && a.front() != ' ') section = was.empty() ? key + "." : "";
    if (a == b || a.starts_with('#')) continue;
    tell(join("configuration changed: ", section, key, ": ", was, " -> ", parts_of(b).second));
  }
}

void compare(const Manifest& manifest, const ResumeWish& wish, const Tell& tell) {
  std::string before = fact(manifest.facts, "config");
  const std::string after = fact(wish.facts, "config");
  if (!before.empty()) {
    const Config saved = parse_config(before, "checkpoint");
    check_model(saved.model, wish.config.model);
    before = dump_config(saved);  // with keys that are newer than the checkpoint
  }
  for (const char* name : {"ranks", "threads", "build"}) {
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
  auto manifest = load_newest(wish.checkpoints, steps, items, all_agree, tell);
  if (manifest) compare(*manifest, wish, tell);
  return manifest;
}

}  // namespace anabranch
