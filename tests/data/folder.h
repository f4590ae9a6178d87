// A fresh folder for a test's files, and small helpers around files and errors.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"

namespace anabranch::test {

// Made empty, removed with all it holds.
class Folder {
 public:
  Folder() : path_(testing::TempDir() + "anabranch-XXXXXX") {
    if (mkdtemp(path_.data()) == nullptr) throw io_error("cannot make ", path_);
  }

  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }

  [[nodiscard]] std::string path(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

inline std::string slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void spill(const std::string& path, const std::string& bytes) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << bytes;
}

// Checks that `f` throws an Error of this kind whose message has all of `parts`.
template <class F>
void expect_error(Fault fault, std::initializer_list<std::string> parts, const F& f) {
  try {
    f();
    ADD_FAILURE() << "no error; expected one about " << testing::PrintToString(parts.begin()[0]);
  } catch (const Error& error) {
    EXPECT_EQ(error.fault(), fault) << error.what();
    for (const std::string& part : parts) EXPECT_THAT(error.what(), testing::HasSubstr(part));
  }
}

}  // namespace anabranch::test
