// Reads checkpoints back, and steps back to an older one where the newest is damaged.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "runtime/checkpoint/directory.h"
#include "runtime/checkpoint/manifest.h"
#include "runtime/checkpoint/state.h"

namespace anabranch {

// The manifest of one checkpoint folder. Throws Error (data, 65) that names the file.
Manifest read_manifest(const std::filesystem::path& checkpoint);

// Fills `items` from a checkpoint, whatever ranks wrote it: every item must be covered, and every
// tensor of the checkpoint be an item or among `elsewhere`, the names of those that other ranks
// have. Only slices that hold some of an item are read, and checked against their CRC-32C.
// Throws Error: data (65) if a file is missing or damaged, config (78) if the names, shapes or
// types are not those of this run.
void load_state(const std::filesystem::path& checkpoint, const Manifest& manifest,
                const std::vector<StateItem>& items, const std::set<std::string>& elsewhere = {});

// Checks every byte of a checkpoint. Throws Error (data, 65) that names what is damaged.
void verify_checkpoint(const std::filesystem::path& checkpoint);

// What ranks do together while they look for a checkpoint.
struct Together {
  std::function<bool(bool ok)> all_agree;  // whether every rank passed true
  std::function<void(const std::filesystem::path& checkpoint)> all_see = {};  // waits until they do
};

// Tries the checkpoints from the newest on until all ranks can load one; of an imported one the
// items of the optimizer are 0. Collective through
// `together`. `warn` is told what was wrong with each that was passed over. Nothing if there is no
// checkpoint at all; throws Error (data, 65) if there are some and none is good, since starting
// over would bury them.
std::optional<Manifest> load_newest(const CheckpointDirectory& directory,
                                    const std::vector<int64_t>& steps,
                                    const std::vector<StateItem>& items,
                                    const std::set<std::string>& elsewhere,
                                    const Together& together,
                                    const std::function<void(const std::string&)>& warn);

}  // namespace anabranch
