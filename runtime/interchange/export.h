// A run handed to other programs: README.md says what is in which file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/tensor/dtype.h"
#include "core/tensor/shape.h"

namespace anabranch {

enum class ExportFormat : uint8_t {
  kHf,      // what `transformers` loads: gpt2 alone
  kGeneric  // any family, by our names
};

struct ExportOptions {
  std::filesystem::path path;        // run directory or checkpoint
  std::filesystem::path out = {};    // folder to make
  std::optional<int64_t> step = {};  // which checkpoint; 0: the weights before the first step
  std::optional<ExportFormat> format = {};  // none: kHf of a gpt2 model, unless there are batches
  bool bf16 = false;                        // round parameters; else they are the master weights
  int64_t batches = 0;  // batches of the steps that follow, to replay the run; kGeneric alone
};

// What was written.
struct ExportReport {
  int64_t step = 0;  // of the weights
  ExportFormat format = ExportFormat::kGeneric;
  std::vector<std::filesystem::path> files;
};

// Writes model.safetensors, config.json and tokenizer.json; by format tokenizer_config.json, or
// config.yaml and, if asked for, batches.h5. The folder appears whole or not at all, and replaces
// an earlier export only. Throws Error: config (78) if the format cannot hold the model, usage (64)
// if the folder has other files, data (65), I/O (74).
ExportReport export_run(const ExportOptions& options);

// A tensor as it is exported.
struct ExportName {
  std::string ours;  // in checkpoints
  std::string name;  // in the file
  Shape shape;       // in the file
  DType type = DType::kF32;
  bool transposed = false;  // against ours
};

// What export_run() would write to model.safetensors, without reading any weights.
std::vector<ExportName> export_names(const ExportOptions& options);

}  // namespace anabranch
