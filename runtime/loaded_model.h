// A trained model, read from a run for evaluation, sampling or export.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "data/tokenizer/tokenizer.h"
#include "runtime/checkpoint/manifest.h"
#include "runtime/config/config.h"
#include "runtime/models/model.h"

namespace anabranch {

struct LoadedModel {
  std::filesystem::path checkpoint;  // the folder it was read from
  Manifest manifest;
  Config config;  // of the run that wrote it
  std::unique_ptr<Model> model;
  Tokenizer tokenizer;
};

// Finds a checkpoint and makes its model, whose weights have no memory yet: what device they are
// for may depend on the configuration.
//
//   path  a run directory (its newest good checkpoint is taken, unless `step` says which), or the
//         folder of one checkpoint
//
// The tokenizer is the one kept in the run directory. Throws Error (data, 65) if there is no good
// checkpoint, naming what is damaged.
LoadedModel find_model(const std::filesystem::path& path, std::optional<int64_t> step);

// Reads its weights into the host's memory, and where `pool` is a GPU's sends what ops read there
// and lets go of the rest; a null pool is the plain heap. Throws Error (data, 65) if they are
// damaged, and (config, 78) if they do not fit this machine.
void load_weights(LoadedModel& loaded, const std::shared_ptr<Pool>& pool);

// The run directory that a path belongs to: itself, or that of the checkpoint it is.
std::filesystem::path run_directory_of(const std::filesystem::path& path);

// The name under which a run directory keeps its tokenizer.
inline constexpr const char* kRunTokenizer = "tokenizer.json";

}  // namespace anabranch
