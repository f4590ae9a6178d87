// What a run directory's checkpoints hold, as text that compares with ==.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "runtime/checkpoint/directory.h"
#include "runtime/checkpoint/reader.h"

namespace anabranch::test {

inline CheckpointDirectory checkpoints_of(const std::filesystem::path& run) {
  return CheckpointDirectory(run / "checkpoints");
}

// The steps that have a checkpoint, newest first.
inline std::vector<int64_t> saved_steps(const std::filesystem::path& run) {
  return checkpoints_of(run).steps();
}

// CRC-32C of every tensor, the counters and the data position of a checkpoint, by name; all is read
// and verified first.
inline std::map<std::string, std::string> checkpoint_state(const std::filesystem::path& run,
                                                           int64_t step) {
  const std::filesystem::path checkpoint = checkpoints_of(run).at(step);
  verify_checkpoint(checkpoint);
  const Manifest manifest = read_manifest(checkpoint);
  std::map<std::string, std::string> state;
  for (const CheckpointEntry& e : manifest.entries) {
    state[join(e.name, " from index ", e.part.begin, ", element ", e.from)] =
        std::to_string(e.crc32c);
  }
  for (const auto& [name, values] : manifest.counters) {
    for (const double value : values) state["counter " + name] += join(std::hexfloat, value, " ");
  }
  state["next sample"] = std::to_string(manifest.next_sample);
  return state;
}

// The bytes of every tensor of a checkpoint, put together from its slices, by name.
inline std::map<std::string, std::string> checkpoint_tensors(const std::filesystem::path& run,
                                                             int64_t step) {
  const std::filesystem::path checkpoint = checkpoints_of(run).at(step);
  const Manifest manifest = read_manifest(checkpoint);
  std::map<std::string, StateItem> whole;
  for (const CheckpointEntry& e : manifest.entries) {
    if (!whole.contains(e.name)) {
      whole[e.name] = StateItem::whole(e.name, Tensor(e.part.whole, e.type));
    }
  }
  std::vector<StateItem> items;
  items.reserve(whole.size());
  for (const auto& [name, item] : whole) items.push_back(item);
  load_state(checkpoint, manifest, items);
  std::map<std::string, std::string> tensors;
  for (const StateItem& item : items) {
    tensors[item.name].assign(reinterpret_cast<const char*>(item.value.raw()), item.value.bytes());
  }
  return tensors;
}

}  // namespace anabranch::test
