// A folder of a test's own, removed at its end.
#pragma once

#include <filesystem>
#include <string>
#include <unistd.h>

#include <gtest/gtest.h>

namespace anabranch::test {

class TempDir {
 public:
  TempDir() {
    std::string pattern = testing::TempDir() + "/anabranch-XXXXXX";
    path_ = mkdtemp(pattern.data());
  }

  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

}  // namespace anabranch::test
