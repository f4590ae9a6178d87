#include "runtime/interchange/weight_files.h"

#include <set>

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/quote.h"
#include "runtime/interchange/json_file.h"

namespace anabranch {
namespace fs = std::filesystem;

namespace {

constexpr const char* kIndex = "model.safetensors.index.json";

// Which file has each tensor, as the index says.
std::map<std::string, std::string> read_index(const std::string& path) {
  using nlohmann::json;
  const json document = json::parse(read_json_object(path));
  const auto map = document.find("weight_map");
  if (map == document.end() || !map->is_object() || map->empty()) {
    throw data_error(path, " has no \"weight_map\" of tensors and their files");
  }
  std::map<std::string, std::string> files;
  for (const auto& [name, file] : map->items()) {
    const std::string text = file.is_string() ? file.get<std::string>() : "";
    // It is opened beside the index: a name must not lead elsewhere.
    if (text.empty() || text.find('/') != std::string::npos || text.front() == '.' ||
        text.find('\0') != std::string::npos) {
      throw data_error(path, ": the file of ", quote(name), " is no plain file name");
    }
    files[name] = text;
  }
  return files;
}

}  // namespace

WeightFiles::WeightFiles(const fs::path& folder) {
  const fs::path one = folder / kWeightFile, index = folder / kIndex;
  if (fs::exists(one)) {
    open(one);
  } else if (fs::exists(index)) {
    open_all(folder, index.string());
  } else {
    throw data_error(folder.string(), " holds neither ", kWeightFile, " nor ", kIndex,
                     ": weights of other formats are not read");
  }
}

void WeightFiles::open(const fs::path& path) {
  const SafetensorsReader& file = files_.emplace_back(path.string());
  for (const SafetensorsEntry& entry : file.entries()) {
    if (const auto [at, fresh] = tensors_.try_emplace(entry.name, Place{&file, &entry}); !fresh) {
      throw data_error(file.path(), ": tensor ", quote(entry.name), " is in ",
                       at->second.file->path(), " too");
    }
  }
}

void WeightFiles::open_all(const fs::path& folder, const std::string& index) {
  const std::map<std::string, std::string> listed = read_index(index);
  std::set<std::string> names;
  for (const auto& [name, file] : listed) names.insert(file);
  for (const std::string& name : names) open(folder / name);
  for (const auto& [name, file] : listed) {
    const auto found = tensors_.find(name);
    if (found == tensors_.end() || found->second.file->path() != (folder / file).string()) {
      throw data_error(index, " lists ", quote(name), " in ", file, ", which does not hold it");
    }
  }
  for (const auto& [name, place] : tensors_) {
    if (!listed.contains(name)) {
      throw data_error(place.file->path(), ": tensor ", quote(name), " is not listed in ", index);
    }
  }
}

}  // namespace anabranch
