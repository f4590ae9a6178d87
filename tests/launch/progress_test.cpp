#include "launch/progress.h"

#include <gtest/gtest.h>

namespace anabranch {

namespace {

TEST(Progress, WritesFigures) {
  EXPECT_EQ(bytes_text(512), "512 B");
  EXPECT_EQ(bytes_text(1536), "1.5 KiB");
  EXPECT_EQ(bytes_text(3.0 * 1024 * 1024 * 1024), "3.0 GiB");
  EXPECT_EQ(count_text(999), "999");
  EXPECT_EQ(count_text(45600), "45.6 k");
  EXPECT_EQ(count_text(1, "document"), "1 document");
  EXPECT_EQ(count_text(45600, "document"), "45.6 k documents");
  EXPECT_EQ(time_text(5), "0:05");
  EXPECT_EQ(time_text(3723), "1:02:03");
  EXPECT_EQ(time_text(-1), "-");
}

TEST(Progress, ShowsShareRateAndTimeLeft) {
  const Progress bar("shard build", 2048, Progress::Unit::kBytes);
  const std::string line = bar.line(512, "7 tokens", 2);
  EXPECT_NE(line.find("shard build"), std::string::npos);
  EXPECT_NE(line.find(" 25%  512 B of 2.0 KiB  256 B/s  0:02, 0:06 left  7 tokens"),
            std::string::npos)
      << line;
}

TEST(Progress, WithoutATotalThereIsNoShare) {
  const Progress bar("counting", 0, Progress::Unit::kCount);
  EXPECT_EQ(bar.line(10, "", 2), "counting  10  5/s  0:02");
}

}  // namespace

}  // namespace anabranch
