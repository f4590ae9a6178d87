#include "core/base/read_file.h"

#include <filesystem>

#include "tests/data/folder.h"

namespace anabranch {
namespace {

TEST(ReadFile, GivesEveryByte) {
  const test::Folder folder;
  const std::string bytes("a\0\r\n\xFF", 5);
  test::spill(folder.path("f"), bytes);
  EXPECT_EQ(read_file(folder.path("f")), bytes);
  test::spill(folder.path("empty"), "");
  EXPECT_EQ(read_file(folder.path("empty")), "");
}

TEST(ReadFile, WhatIsMissingIsBadDataAndTheRestTheDisk) {
  const test::Folder folder;
  test::expect_error(Fault::kData, {"none: no such file"}, [&] { read_file(folder.path("none")); });
  test::spill(folder.path("f"), "x");
  test::expect_error(Fault::kData, {"f/g: no such file"}, [&] { read_file(folder.path("f/g")); });
  test::expect_error(Fault::kData, {"is a folder"}, [&] { read_file(folder.path()); });
  // What not even the superuser can open, and what opens and cannot be read.
  std::filesystem::create_symlink(folder.path("loop"), folder.path("loop"));
  test::expect_error(Fault::kIo, {"cannot open", "loop"}, [&] { read_file(folder.path("loop")); });
  test::expect_error(Fault::kIo, {"cannot read"}, [] { read_file("/proc/self/mem"); });
}

}  // namespace
}  // namespace anabranch
