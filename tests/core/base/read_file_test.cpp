#include "core/base/read_file.h"

#include <filesystem>
#include <unistd.h>

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
  if (getuid() == 0) GTEST_SKIP() << "the superuser may read everything";
  std::filesystem::permissions(folder.path("f"), std::filesystem::perms::none);
  test::expect_error(Fault::kIo, {"cannot open"}, [&] { read_file(folder.path("f")); });
}

}  // namespace
}  // namespace anabranch
