#include "runtime/checkpoint/reader.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>

#include "core/base/crc32c.h"
#include "core/base/error.h"
#include "data/hdf5/file.h"

namespace anabranch {
namespace fs = std::filesystem;

namespace {

// One stored slice, read and proven.
std::vector<std::byte> read_slice(const fs::path& checkpoint, const CheckpointEntry& e,
                                  std::map<std::string, Hdf5Reader>& files) {
  auto found = files.find(e.file);
  if (found == files.end()) {
    found = files.emplace(e.file, Hdf5Reader((checkpoint / e.file).string())).first;
  }
  const Hdf5Reader& file = found->second;
  const Hdf5DataSet* set = file.find(e.name);
  if (set == nullptr) throw data_error(file.path(), " lacks the tensor ", e.name);
  const int64_t bytes = e.bytes();
  if (set->offset < 0 || set->bytes() != bytes) {
    throw data_error(file.path(), ": ", e.name, " has ", set->bytes(), " bytes; expected ", bytes);
  }
  std::vector<std::byte> content(static_cast<size_t>(bytes));
  file.read(*set, content.data(), bytes);
  if (crc32c(content.data(), content.size()) != e.crc32c) {
    throw data_error(file.path(), ": the content of ", e.name, " is damaged (CRC-32C differs)");
  }
  return content;
}

void check_fits(const StateItem& item, const CheckpointEntry& e) {
  if (e.part.whole == item.part.whole && e.type == item.value.dtype()) return;
  throw config_error(
      "the checkpoint's ", item.name, " is ", name_of(e.type), e.part.whole, " but this run's is ",
      name_of(item.value.dtype()), item.part.whole,
      ". Resume with the configuration it was written with, or use another run.dir.");
}

// What a slice and an item have in common: `here` is a place in the slice, `there` in the item.
std::vector<Run> overlap(const CheckpointEntry& e, const StateItem& item) {
  const std::vector<Run> stored = runs_of(e.part, e.from, e.count);
  const std::vector<Run> wanted = runs_of(item.part, item.from, item.value.count());
  std::vector<Run> common;
  for (auto s = stored.begin(), w = wanted.begin(); s != stored.end() && w != wanted.end();) {
    const int64_t stored_end = s->there + s->count, wanted_end = w->there + w->count;
    const int64_t begin = std::max(s->there, w->there), end = std::min(stored_end, wanted_end);
    if (begin < end) {
      common.push_back({s->here + begin - s->there, w->here + begin - w->there, end - begin});
    }
    ++(stored_end < wanted_end ? s : w);
  }
  return common;
}

// What a checkpoint has of `items`: an imported one nothing of the optimizer, "adamw.m/wte.weight",
// which is set to 0, for a damaged checkpoint may have left some there.
std::vector<StateItem> items_of(const Manifest& manifest, std::vector<StateItem> items) {
  if (!manifest.weights_only()) return items;
  std::erase_if(items, [](StateItem& item) {
    const bool of_optimizer = item.name.find('/') != std::string::npos;
    if (of_optimizer) item.value.fill_zero();
    return of_optimizer;
  });
  return items;
}

}  // namespace

Manifest read_manifest(const fs::path& checkpoint) {
  const fs::path path = checkpoint / "manifest.json";
  std::ifstream in(path, std::ios::binary);
  if (!in) throw data_error("no checkpoint at ", checkpoint.string(), ": manifest.json is missing");
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  return Manifest::parse(text, path.string());
}

void load_state(const fs::path& checkpoint, const Manifest& manifest,
                const std::vector<StateItem>& items, const std::set<std::string>& elsewhere) {
  std::map<std::string, const StateItem*> wanted;
  for (const StateItem& item : items) wanted[item.name] = &item;
  std::map<std::string, Hdf5Reader> files;
  std::set<std::string> seen;
  for (const CheckpointEntry& e : manifest.entries) {
    const auto found = wanted.find(e.name);
    if (found == wanted.end()) {
      if (elsewhere.contains(e.name)) continue;
      throw config_error(checkpoint.string(), " holds ", e.name, ", which this model has not. ",
                         "Resume with the configuration it was written with.");
    }
    const StateItem& item = *found->second;
    check_fits(item, e);
    seen.insert(e.name);
    const std::vector<Run> common = overlap(e, item);
    if (common.empty()) continue;  // another rank's: not read
    const std::vector<std::byte> content = read_slice(checkpoint, e, files);
    Tensor value = item.value.on_host();
    const int64_t width = size_of(e.type);
    for (const Run& run : common) {
      std::copy_n(content.data() + run.here * width, run.count * width,
                  value.raw() + run.there * width);
    }
    if (item.value.device().is_cuda()) Tensor(item.value).copy_from(value);
  }
  for (const StateItem& item : items) {
    check_finite(join(checkpoint.string(), ": ", item.name), item.value);
    if (!seen.contains(item.name)) {
      throw config_error(checkpoint.string(), " lacks ", item.name, ", which this model has. ",
                         "Resume with the configuration it was written with.");
    }
  }
}

void verify_checkpoint(const fs::path& checkpoint) {
  const Manifest manifest = read_manifest(checkpoint);
  std::map<std::string, Hdf5Reader> files;
  for (const CheckpointEntry& e : manifest.entries) (void)read_slice(checkpoint, e, files);
}

std::optional<Manifest> load_newest(const CheckpointDirectory& directory,
                                    const std::vector<int64_t>& steps,
                                    const std::vector<StateItem>& items,
                                    const std::set<std::string>& elsewhere,
                                    const Together& together,
                                    const std::function<void(const std::string&)>& warn) {
  std::string last_problem;
  for (const int64_t step : steps) {
    if (together.all_see) together.all_see(directory.at(step));
    Manifest manifest;
    std::string problem, misfit;
    try {
      manifest = read_manifest(directory.at(step));
      load_state(directory.at(step), manifest, items_of(manifest, items), elsewhere);
    } catch (const Error& error) {
      (error.fault() == Fault::kConfig ? misfit : problem) = error.what();
    }
    if (together.all_agree(problem.empty() && misfit.empty())) return manifest;
    // A model that does not fit is a user's mistake; an older checkpoint would not mend it. What
    // some ranks have of it may fit.
    if (!together.all_agree(misfit.empty())) {
      throw Error(Fault::kConfig, misfit.empty()
                                      ? "the checkpoint is not of this model, as another "
                                        "rank says: resume with the configuration it "
                                        "was written with"
                                      : misfit);
    }
    last_problem = problem.empty() ? "another rank could not read it" : problem;
    warn(join("checkpoint ", directory.at(step).string(), " is passed over: ", last_problem));
  }
  if (!steps.empty()) {
    throw data_error("none of ", steps.size(),
                     " checkpoints can be read; the last tried: ", last_problem,
                     ". Move them away to start over.");
  }
  return std::nullopt;
}

}  // namespace anabranch
