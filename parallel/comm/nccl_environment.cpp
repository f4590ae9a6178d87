#include "parallel/comm/nccl_environment.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string_view>
#include <unistd.h>

namespace anabranch {
namespace {

using Variables = std::map<std::string, NcclVariable>;

// Of one name the first counts.
void add(Variables& all, std::string_view line, const std::string& origin) {
  const size_t equals = line.find('=');
  if (!line.starts_with("NCCL_") || equals == std::string_view::npos) return;
  const std::string name(line.substr(0, equals));
  all.try_emplace(name, NcclVariable{name, std::string(line.substr(equals + 1)), origin});
}

void add_file(Variables& all, const std::string& path) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) add(all, line, path);
}

// In the order in which NCCL looks.
Variables from_user() {
  Variables all;
  for (char** line = environ; *line != nullptr; ++line) add(all, *line, "environment");
  const char* named = std::getenv("NCCL_CONF_FILE");
  const char* home = std::getenv("HOME");
  if (named != nullptr) {
    add_file(all, named);
  } else if (home != nullptr) {
    add_file(all, std::string(home) + "/.nccl.conf");
  }
  add_file(all, "/etc/nccl.conf");
  return all;
}

}  // namespace

std::vector<NcclVariable> set_nccl_environment(const std::string& log_directory) {
  Variables all = from_user();
  const auto set = [&](const std::string& name, const std::string& value) {
    const bool is_new = all.try_emplace(name, NcclVariable{name, value, "anabranch"}).second;
    if (is_new) setenv(name.c_str(), value.c_str(), 1);
  };
  if (!log_directory.empty()) {
    set("NCCL_DEBUG", "WARN");
    set("NCCL_DEBUG_FILE", log_directory + "/nccl.%h.%p.log");
  }
  set("NCCL_ALGO", "Ring");
  std::vector<NcclVariable> list;
  for (auto& [name, variable] : all) list.push_back(std::move(variable));
  return list;
}

}  // namespace anabranch
