#include <algorithm>
#include <filesystem>
#include <glob.h>
#include <set>

#include "core/base/error.h"
#include "data/text/documents.h"

namespace anabranch {
namespace {

namespace fs = std::filesystem;

void add_folder(const fs::path& folder, std::vector<std::string>& found) {
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (entry.path().filename().string().starts_with('.')) continue;
    if (entry.is_directory()) {
      add_folder(entry.path(), found);
    } else if (entry.is_regular_file()) {
      found.push_back(entry.path().string());
    }
  }
}

std::vector<std::string> expand(const std::string& pattern) {
  std::vector<std::string> found;
  const auto add = [&](const std::string& path) {
    if (fs::is_directory(path)) {
      add_folder(path, found);
    } else if (fs::exists(path)) {
      found.push_back(path);
    }
  };
  add(pattern);
  if (found.empty() && pattern.find_first_of("*?[") != std::string::npos) {
    glob_t matches{};
    if (::glob(pattern.c_str(), GLOB_NOSORT, nullptr, &matches) == 0) {
      for (size_t i = 0; i < matches.gl_pathc; ++i) add(matches.gl_pathv[i]);
    }
    ::globfree(&matches);
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace

std::vector<InputText> list_inputs(const std::vector<std::string>& patterns) {
  std::vector<InputText> all;
  std::set<std::string> seen;
  try {
    for (const std::string& pattern : patterns) {
      const std::vector<std::string> found = expand(pattern);
      if (found.empty()) throw data_error(pattern, ": no such file, or no file in it");
      for (const std::string& path : found) {
        if (!seen.insert(fs::canonical(path).string()).second) {
          throw data_error(path, " comes twice among the inputs (the second time by ", pattern,
                           ")");
        }
        all.push_back({path, static_cast<int64_t>(fs::file_size(path))});
      }
    }
  } catch (const fs::filesystem_error& error) {
    throw io_error("cannot list the inputs: ", error.what());
  }
  if (all.empty()) throw data_error("no input files are given");
  return all;
}

}  // namespace anabranch
