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
    state[join(e.name, " from row ", e.begin)] = std::to_string(e.crc32c);
  }
  for (const auto& [name, values] : manifest.counters) {
    for (const double value : values) state["counter " + name] += join(std::hexfloat, value, " ");
  }
  state["next sample"] = std::to_string(manifest.next_sample);
  return state;
}

}  // namespace anabranch::test
