// The tensors of a folder of safetensors: of one file, or of those that an index names.
#pragma once

#include <deque>
#include <filesystem>
#include <map>
#include <string>

#include "runtime/interchange/safetensors.h"

namespace anabranch {

class WeightFiles {
 public:
  struct Place {
    const SafetensorsReader* file;
    const SafetensorsEntry* entry;
  };

  // Reads the headers of model.safetensors, or of what model.safetensors.index.json lists. Throws
  // Error (data, 65) if there is neither, or file and index do not say the same.
  explicit WeightFiles(const std::filesystem::path& folder);

  // By the names in the files.
  [[nodiscard]] const std::map<std::string, Place>& tensors() const { return tensors_; }

 private:
  void open(const std::filesystem::path& path);
  void open_all(const std::filesystem::path& folder, const std::string& index);

  std::deque<SafetensorsReader> files_;  // their addresses are kept
  std::map<std::string, Place> tensors_;
};

// The name of an only file.
inline constexpr const char* kWeightFile = "model.safetensors";

}  // namespace anabranch
