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
  const int64_t rows = std::max<int64_t>(e.global_shape[0], 1);
  const int64_t bytes = e.global_shape.count() / rows * e.length * size_of(e.type);
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
  if (e.global_shape == item.global_shape && e.type == item.value.dtype()) return;
  throw config_error(
      "the checkpoint's ", item.name, " is ", name_of(e.type), e.global_shape,
      " but this run's is ", name_of(item.value.dtype()), item.global_shape,
      ". Resume with the configuration it was written with, or use another run.dir.");
}

// Copies what the slice and the item have in common.
void copy_overlap(const StateItem& item, const CheckpointEntry& e,
                  const std::vector<std::byte>& content) {
  const int64_t rows = item.value.dim(0);
  const int64_t begin = std::max(e.begin, item.begin);
  const int64_t end = std::min(e.begin + e.length, item.begin + rows);
  if (begin >= end) return;
  const size_t row_bytes = item.value.bytes() / static_cast<size_t>(rows);
  Tensor value = item.value;
  std::copy_n(content.data() + static_cast<size_t>(begin - e.begin) * row_bytes,
              static_cast<size_t>(end - begin) * row_bytes,
              value.raw() + static_cast<size_t>(begin - item.begin) * row_bytes);
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
                const std::vector<StateItem>& items) {
  std::map<std::string, const StateItem*> wanted;
  for (const StateItem& item : items) wanted[item.name] = &item;
  std::map<std::string, Hdf5Reader> files;
  std::map<std::string, bool> seen;
  for (const CheckpointEntry& e : manifest.entries) {
    const auto found = wanted.find(e.name);
    if (found == wanted.end()) {
      throw config_error(checkpoint.string(), " holds ", e.name, ", which this model has not. ",
                         "Resume with the configuration it was written with.");
    }
    check_fits(*found->second, e);
    copy_overlap(*found->second, e, read_slice(checkpoint, e, files));
    seen[e.name] = true;
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
                                    const std::function<bool(bool)>& all_agree,
                                    const std::function<void(const std::string&)>& warn) {
  std::string last_problem;
  for (const int64_t step : steps) {
    Manifest manifest;
    std::string problem;
    try {
      manifest = read_manifest(directory.at(step));
      load_state(directory.at(step), manifest, items);
    } catch (const Error& error) {
      // A model that does not fit is a user's mistake on every rank alike; an older checkpoint
      // would not mend it.
      if (error.fault() == Fault::kConfig) throw;
      problem = error.what();
    }
    if (all_agree(problem.empty())) return manifest;
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
