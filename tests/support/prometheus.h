// A Prometheus of the test's own, and what it answers.
#pragma once

#include <filesystem>
#include <string>

#include <nlohmann/json.hpp>

#include "tests/support/process.h"

namespace anabranch::test {

class Prometheus {
 public:
  // Whether it is installed (Debian's package prometheus).
  static bool installed();

  // Starts on a free port of the loopback address; keeps its data in `folder`.
  Prometheus(const std::filesystem::path& config, const std::filesystem::path& folder);

  [[nodiscard]] bool ready() const;

  [[nodiscard]] std::string log() const { return process_.output(); }

  // The JSON answer of its HTTP interface, e.g. get("rules") or get("query", {{"query", "up"}}). An
  // answer that is none has status "unreachable".
  [[nodiscard]] nlohmann::json get(
      const std::string& what,
      const std::vector<std::pair<std::string, std::string>>& keys = {}) const;

  // data.result of an expression now.
  [[nodiscard]] nlohmann::json now(const std::string& expression) const;

 private:
  int port_;
  Process process_;
};

}  // namespace anabranch::test
