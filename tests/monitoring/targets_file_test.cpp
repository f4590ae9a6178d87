#include "monitoring/targets_file.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temp_dir.h"

namespace anabranch {

namespace {

using testing::HasSubstr;

TEST(TargetsFile, LivesAsLongAsTheObject) {
  const test::TempDir folder;
  const std::string dir = folder.path();
  std::vector<std::string> warnings;
  const auto warn = [&](const std::string& line) { warnings.push_back(line); };
  {
    const TargetsFile file(dir + "/targets.json", "127.0.0.1:9", {{"run", "a\"b"}}, warn);
    std::ifstream in(dir + "/targets.json");
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    EXPECT_THAT(text, testing::MatchesRegex(
                          "\\[[^a-z]*\"targets\": \\[[^a-z]*\"127.0.0.1:9\"[^a-z]*\\],[^a-z]*"
                          "\"labels\": \\{[^a-z]*\"run\": \"a\\\\\"b\"[^a-z]*\\}[^a-z]*\\]\n"));
    EXPECT_FALSE(std::filesystem::exists(dir + "/targets.json.tmp"));
  }
  EXPECT_TRUE(std::filesystem::is_empty(dir));
  EXPECT_TRUE(warnings.empty());
  { const TargetsFile file(dir + "/none/targets.json", "127.0.0.1:9", {}, warn); }
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_THAT(warnings[0], HasSubstr("none/targets.json: No such file"));
}

}  // namespace

}  // namespace anabranch
