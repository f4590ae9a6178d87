#include "monitoring/json_lines.h"

#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temp_dir.h"

namespace anabranch {

namespace {

using testing::HasSubstr;

class JsonLinesTest : public testing::Test {
 protected:
  [[nodiscard]] std::string content() const {
    std::ifstream in(path_);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  test::TempDir dir_;
  std::string path_ = dir_ / "metrics.jsonl";
  std::vector<std::string> warnings_;
  std::function<void(const std::string&)> warn_ = [this](const std::string& line) {
    warnings_.push_back(line);
  };
};

TEST(JsonLine, NamesAndNumbers) {
  JsonLine line("step");
  line.add(Metric::kStep, 1000000).add(Metric::kLoss, 2.5);
  line.add(Metric::kComputeSeconds, 0.125, "max");
  line.add("grad", std::numeric_limits<double>::infinity()).add("why", "a\"b\\\n\x01");
  EXPECT_EQ(line.text(),
            "{\"type\":\"step\",\"step\":1000000,\"loss\":2.5,\"compute_seconds_max\":0.125,"
            "\"grad\":null,\"why\":\"a\\\"b\\\\\\u000a\\u0001\"}");
}

TEST(JsonLine, Arrays) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  JsonLine line("mixture");
  line.add("one", std::vector<double>{0.5, nan, 2}).add("none", std::vector<double>{});
  line.add("rows", std::vector<std::vector<double>>{{0.25, 0.75}, {}, {1}});
  line.add("yes", true).add("no", false);
  EXPECT_EQ(line.text(),
            "{\"type\":\"mixture\",\"one\":[0.5,null,2],\"none\":[],"
            "\"rows\":[[0.25,0.75],[],[1]],\"yes\":true,\"no\":false}");
}

TEST_F(JsonLinesTest, AppendsWholeLines) {
  for (int run = 0; run < 2; ++run) {
    JsonLines lines(path_, warn_);
    for (int i = 0; i < 3; ++i) lines.write(JsonLine("step").add(Metric::kStep, i));
    lines.flush();
    EXPECT_EQ(lines.lost(), 0);
  }
  const std::string once =
      "{\"type\":\"step\",\"step\":0}\n{\"type\":\"step\",\"step\":1}\n"
      "{\"type\":\"step\",\"step\":2}\n";
  EXPECT_EQ(content(), once + once);
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(JsonLinesTest, WritesTheRestAtTheEnd) {
  {
    JsonLines lines(path_, warn_);
    for (int i = 0; i < 1000; ++i) lines.write(JsonLine("step").add(Metric::kStep, i));
  }
  EXPECT_THAT(content(), testing::EndsWith("{\"type\":\"step\",\"step\":999}\n"));
}

TEST_F(JsonLinesTest, CutsOffATornLine) {
  const std::string whole = "{\"type\":\"step\"}\n";
  std::ofstream(path_) << whole << "{\"type\":\"" << std::string(10000, 'x');
  { JsonLines(path_, warn_).write(JsonLine("eval")); }
  EXPECT_EQ(content(), whole + "{\"type\":\"eval\"}\n");
  ASSERT_EQ(warnings_.size(), 1U);
  EXPECT_THAT(warnings_[0], HasSubstr("torn last line of 10009 bytes"));
}

TEST_F(JsonLinesTest, FullDiskLosesAndCounts) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full";
  JsonLines lines("/dev/full", warn_);
  for (int i = 0; i < 3; ++i) lines.write(JsonLine("step"));
  lines.flush();
  EXPECT_EQ(lines.lost(), 3);
  ASSERT_EQ(warnings_.size(), 1U);
  EXPECT_THAT(warnings_[0], HasSubstr("/dev/full: No space left"));
}

TEST_F(JsonLinesTest, UnwritableFileIsAWarning) {
  JsonLines lines(dir_ / "none/metrics.jsonl", warn_);
  lines.write(JsonLine("step"));
  lines.flush();
  EXPECT_EQ(lines.lost(), 1);
  EXPECT_EQ(warnings_.size(), 1U);
}

}  // namespace

}  // namespace anabranch
