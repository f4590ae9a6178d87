// A model of other programs, or an export of ours, made into a run that goes on from its weights.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace anabranch {

struct ImportOptions {
  std::filesystem::path from;       // folder of GPT-2 by Hugging Face, or of a generic export
  std::filesystem::path out;        // run directory to make
  std::filesystem::path tokenizer;  // tokenizer.json for a folder that has none; empty: its own
};

struct ImportReport {
  std::string format;  // "hf" or "generic"
  int64_t tensors = 0, parameters = 0;
  int64_t padding = 0;               // rows of the vocabulary that no token has: left out
  std::vector<std::string> ignored;  // masks that are no weights
};

// Writes config.yaml, tokenizer.json and a checkpoint of step 0 that holds weights and buffers
// alone: training starts from them with a fresh optimizer. The run directory appears whole or not
// at all. Throws Error: data (65) that names the file and what is missing, too much, misshapen or
// damaged; usage (64) if `out` holds something; config (78) if memory does not suffice; I/O (74).
ImportReport import_run(const ImportOptions& options);

}  // namespace anabranch
