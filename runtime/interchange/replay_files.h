// What tests/reference/replay.py reads beside the weights: sizes and rates, and the next batches.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "runtime/loaded_model.h"

namespace anabranch {

// config.json of a generic export: sizes, the optimizer, the learning rates of the next steps.
std::string write_generic_config(const LoadedModel& loaded, int64_t rates);

// The batches of the steps that follow, as any number of ranks would see them: `tokens` int32
// [batches, sequences, T + 1] and, if the run masks documents, `document_starts` int32 [batches,
// sequences, T]: the first position that each attends to.
void write_batches(const std::filesystem::path& path, const LoadedModel& loaded, int64_t batches);

}  // namespace anabranch
