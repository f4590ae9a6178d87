// What a checkpoint holds: every tensor's place, and the counters of the run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "core/tensor/dtype.h"
#include "core/tensor/part.h"

namespace anabranch {

// A stored slice of a logical tensor: `count` elements of a part of it, row-major, from its element
// `from` on.
struct CheckpointEntry {
  std::string name;  // logical: "h.0.ln_1.weight", "adamw.m/h.0.ln_1.weight"
  Part part;
  int64_t from = 0, count = 0;
  DType type = DType::kF32;
  uint32_t crc32c = 0;  // of the slice's bytes, taken from memory before they were written
  std::string file;     // "rank-0000.h5"

  [[nodiscard]] int64_t bytes() const { return count * size_of(type); }
};

struct Manifest {
  // Format 1 knew slices along axis 0 only.
  static constexpr int kFormat = 2;
  // The fact of a checkpoint that was imported, and its value: it has weights and buffers alone.
  static constexpr const char* kHolds = "holds";
  static constexpr const char* kWeights = "weights";

  int64_t step = 0;         // optimizer steps done
  int64_t next_sample = 0;  // the data position: the first global sample that was not used
  std::map<std::string, std::vector<double>> counters;  // small state: step guard, token count
  std::map<std::string, std::string> facts;  // config text, versions, data fingerprint, layout
  std::vector<CheckpointEntry> entries;

  // Whether a run starts from its weights with a fresh optimizer and its own data.
  [[nodiscard]] bool weights_only() const;

  // Throws Error (data, 65), naming the tensor, unless its entries have every element exactly once.
  void check_coverage() const;

  [[nodiscard]] std::string json() const;
  // Throws Error (data, 65) that names `source` and what is wrong.
  static Manifest parse(const std::string& json, const std::string& source);
};

// The entries of one rank, as it hands them to the rank that writes the manifest.
std::string entries_json(const std::vector<CheckpointEntry>& entries);
std::vector<CheckpointEntry> parse_entries(const std::string& json, const std::string& source);

}  // namespace anabranch
