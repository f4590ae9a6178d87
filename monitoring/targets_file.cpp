#include "monitoring/targets_file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>

#include <nlohmann/json.hpp>

#include "core/base/error.h"

namespace anabranch {

TargetsFile::TargetsFile(std::string path, const std::string& address, const Labels& labels,
                         const std::function<void(const std::string&)>& warn)
    : path_(std::move(path)) {
  nlohmann::ordered_json names = nlohmann::ordered_json::object();
  for (const auto& [name, value] : labels) names[name] = value;
  const nlohmann::ordered_json document = {{{"targets", {address}}, {"labels", names}}};
  const std::string temporary = path_ + ".tmp";
  std::ofstream out(temporary, std::ios::trunc);
  out << document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
  out.close();
  if (!out || std::rename(temporary.c_str(), path_.c_str()) != 0) {
    warn(join("cannot write ", path_, ": ", std::strerror(errno),
              "; Prometheus will not find this run by itself"));
    std::remove(temporary.c_str());
    path_.clear();
  }
}

TargetsFile::~TargetsFile() {
  if (!path_.empty()) std::remove(path_.c_str());
}

}  // namespace anabranch
