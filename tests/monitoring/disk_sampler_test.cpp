#include "monitoring/disk_sampler.h"

#include <cmath>

#include <gtest/gtest.h>

#include "tests/support/temp_dir.h"

namespace anabranch {
namespace {

TEST(DiskSampler, TellsTheRoomThatIsLeft) {
  const test::TempDir dir;
  Metrics metrics(Labels{});
  const DiskSampler sampler(metrics, dir.path().string());
  EXPECT_GT(metrics.value(Metric::kDiskFree), 0);  // at once
  EXPECT_FALSE(metrics.value(Metric::kDiskFreeFiles) < 1);
}

TEST(DiskSampler, LooksAgain) {
  const test::TempDir dir;
  Metrics metrics(Labels{});
  const DiskSampler sampler(metrics, dir.path().string(), std::chrono::milliseconds(1));
  metrics.set(Metric::kDiskFree, -1);
  const auto start = std::chrono::steady_clock::now();
  while (metrics.value(Metric::kDiskFree) < 0) {
    ASSERT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

TEST(DiskSampler, WhatIsNotThereIsUnknown) {
  const test::TempDir dir;
  Metrics metrics(Labels{});
  const DiskSampler sampler(metrics, dir / "none");
  EXPECT_TRUE(std::isnan(metrics.value(Metric::kDiskFree)));
  EXPECT_TRUE(std::isnan(metrics.value(Metric::kDiskFreeFiles)));
}

}  // namespace
}  // namespace anabranch
