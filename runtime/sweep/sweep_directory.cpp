#include "runtime/sweep/sweep_directory.h"

#include <map>
#include <set>
#include <system_error>

#include "core/base/error.h"
#include "core/base/quote.h"
#include "data/hdf5/raw_file.h"
#include "runtime/config/number.h"
#include "runtime/config/validate.h"

namespace anabranch {

namespace {

namespace fs = std::filesystem;

constexpr size_t kShown = 5;  // of what differs

void make(const fs::path& folder) {
  std::error_code failure;
  fs::create_directories(folder, failure);
  if (failure) throw io_error("cannot make the folder ", folder.string(), ": ", failure.message());
}

// The values of a configuration by "section.key", as YAML has them.
void flatten(const YamlNode& node, const std::string& name,
             std::map<std::string, std::string>& values) {
  if (node.kind != YamlNode::Kind::kMap) {
    values[name] = node.kind == YamlNode::Kind::kList ? setting_text(node) : node.value;
    return;
  }
  for (const YamlNode& item : node.items) {
    flatten(item, name.empty() ? item.key : name + "." + item.key, values);
  }
}

std::map<std::string, std::string> values_of(const Config& config) {
  std::map<std::string, std::string> values;
  flatten(parse_yaml(dump_config(config), ""), "", values);
  return values;
}

// How long a run is; more of it is no other run.
bool is_length(const std::string& key) {
  static const std::set<std::string> kLengths = {"train.steps", "train.tokens", "train.epochs"};
  return kLengths.contains(key);
}

// Adds "id: key was a, is b" for all that differ.
void compare(const std::string& id, const Config& before, const Config& now,
             std::vector<std::string>& differences) {
  const auto was = values_of(before), is = values_of(now);
  const bool longer = plan_batch(now, 1).steps >= plan_batch(before, 1).steps;
  std::set<std::string> keys;
  for (const auto* values : {&was, &is}) {
    for (const auto& [key, value] : *values) keys.insert(key);
  }
  const auto value = [](const auto& values, const std::string& key) {
    const auto found = values.find(key);
    return found == values.end() ? std::string("not there") : quote(found->second);
  };
  for (const std::string& key : keys) {
    const std::string old = value(was, key), fresh = value(is, key);
    if (old == fresh || (is_length(key) && longer)) continue;
    differences.push_back(join(id, ": ", key, " was ", old, ", is ", fresh));
  }
}

// What of a sweep that was submitted before is not so any more.
std::vector<std::string> differences_from(const SweepDirectory& directory, const Sweep& sweep) {
  std::map<std::string, const SweepRun*> runs;
  for (const SweepRun& run : sweep.runs) runs[run.id] = &run;
  std::vector<std::string> differences;
  for (const SweepRun& before : read_record(directory.path().string()).runs) {
    const fs::path file = directory.config(before.id);
    const auto now = runs.find(before.id);
    if (now == runs.end()) {
      differences.push_back(before.id + " is not in the file any more");
    } else if (fs::exists(file)) {
      compare(before.id, load_config(file.string()), run_config(sweep, *now->second), differences);
    }
  }
  return differences;
}

}  // namespace

FileLock SweepDirectory::lock_decisions() const {
  make(path_);
  constexpr double kPatience = 60;
  std::optional<FileLock> lock = FileLock::take(path_ / "lock", kPatience);
  if (!lock) {
    throw io_error("another program has been deciding about the runs of ", path_.string(),
                   " for a minute (", lock_holder(path_ / "lock"), "). Wait for it, or end it.");
  }
  lock->write(holder_line());
  return std::move(*lock);
}

std::optional<FileLock> SweepDirectory::take_claim(const std::string& id) const {
  make(path_ / "claims");
  std::optional<FileLock> lock = FileLock::take(claim(id), 0.2);
  if (lock) lock->write(holder_line());
  return lock;
}

void SweepDirectory::submit(const Sweep& sweep, const SweepOptions& options,
                            const std::vector<std::string>& header) const {
  if (fs::exists(path_ / "sweep.json")) {
    const std::vector<std::string> differences = differences_from(*this, sweep);
    if (!differences.empty()) {
      std::string list;
      for (size_t i = 0; i < std::min(kShown, differences.size()); ++i) {
        list += "\n  " + differences[i];
      }
      if (differences.size() > kShown) {
        list += join("\n  and ", counted(std::ssize(differences) - kShown, "difference"), " more");
      }
      throw config_error(path_.string(), " holds runs of another sweep than ", sweep.path,
                         " describes now; points, seeds and steps may be added, nothing else. ",
                         "Give the file another name, or move the folder away.", list);
    }
  }
  const SweepRecord record = record_of(sweep, options);
  write_runs(sweep, (path_ / "configs").string(), header);
  write_atomically((path_ / "sweep.json").string(), record_json(record));
}

}  // namespace anabranch
