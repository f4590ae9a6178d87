// A run handed to other programs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

namespace anabranch {

struct ExportOptions {
  std::filesystem::path path;   // run directory or checkpoint
  std::filesystem::path out;    // folder to make
  std::optional<int64_t> step;  // which checkpoint; 0: the weights before the first step
  int64_t batches = 0;          // batches of the steps that follow, to replay the run
};

// What was written.
struct ExportReport {
  int64_t step = 0;  // of the weights
  std::vector<std::filesystem::path> files;
};

// Writes model.safetensors (fp32 master weights; matrices are [out, in]), config.json (sizes,
// optimizer, learning rates of the steps that follow), tokenizer.json and, if asked for, batches.h5
// with `tokens` int32 [batches, sequences, T + 1] and, if the run masks documents,
// `document_starts` int32 [batches, sequences, T]: the first position that each attends to.
// tests/reference/replay.py reads all of it. Throws Error: data (65), I/O (74).
ExportReport export_run(const ExportOptions& options);

}  // namespace anabranch
