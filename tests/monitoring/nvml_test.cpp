#include "monitoring/nvml.h"

#include <cmath>
#include <cstdlib>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "monitoring/gpu_sampler.h"
#include "monitoring/metric_table.h"

namespace anabranch {
namespace {

using testing::HasSubstr;

const std::string kPci = "0000:3b:00.0";

// What the stand-in for the driver's library is told, for one test.
class NvmlTest : public testing::Test {
 protected:
  void TearDown() override { unsetenv("FAKE_NVML"); }

  static void tell(const char* what) { setenv("FAKE_NVML", what, 1); }
};

double figure(const GpuReading& reading, Metric metric) {
  return reading[static_cast<size_t>(metric) - static_cast<size_t>(kGpuMetrics[0].id)];
}

double throttled(const GpuReading& reading, size_t cause) {
  return reading[kGpuSpreads + kGpuSums + cause];
}

TEST_F(NvmlTest, FiguresAreInTheUnitsOfTheTable) {
  Nvml nvml(AB_FAKE_NVML);
  ASSERT_EQ(nvml.why_not(), "");
  EXPECT_EQ(nvml.driver_version(), "580.65.06");
  const Nvml::Handle gpu = nvml.find(kPci);
  ASSERT_NE(gpu, nullptr);
  EXPECT_EQ(nvml.nvlinks(gpu), 5);
  tell("2");
  const GpuReading r = nvml.read(gpu);
  const std::vector<std::pair<Metric, double>> planted{{Metric::kGpuUtilisation, 0.93},
                                                       {Metric::kGpuMemoryUsed, 100 * 0x1p30},
                                                       {Metric::kGpuMemory, 150 * 0x1p30},
                                                       {Metric::kGpuPower, 612.5},
                                                       {Metric::kGpuTemperature, 64},
                                                       {Metric::kGpuClock, 1.98e9},
                                                       {Metric::kGpuMemoryClock, 3.201e9},
                                                       {Metric::kGpuPcieSent, 1.5e6},
                                                       {Metric::kGpuPcieReceived, 2.5e6},
                                                       {Metric::kGpuNvlinkSent, 4000 * 1024.0},
                                                       {Metric::kGpuEccCorrected, 7},
                                                       {Metric::kGpuEccUncorrected, 2},
                                                       {Metric::kGpuXid, 2}};
  for (const auto& [metric, value] : planted) {
    EXPECT_DOUBLE_EQ(figure(r, metric), value) << spec_of(metric).name;
  }
  EXPECT_TRUE(std::isnan(figure(r, Metric::kGpuNvlinkReceived))) << "a field that is not supported";
  EXPECT_EQ(throttled(r, 0), 1);
  EXPECT_EQ(throttled(r, 1), 0);
  EXPECT_EQ(throttled(r, 2), 0);
  tell("5");  // three more
  EXPECT_EQ(figure(nvml.read(gpu), Metric::kGpuXid), 5);
}

TEST_F(NvmlTest, WhatIsNotSupportedIsUnknown) {
  Nvml nvml(AB_FAKE_NVML);
  tell("nothing");
  const Nvml::Handle gpu = nvml.find(kPci);
  for (const double value : nvml.read(gpu)) EXPECT_TRUE(std::isnan(value));
  EXPECT_EQ(nvml.nvlinks(gpu), 0);
}

TEST_F(NvmlTest, AnOlderLibraryTellsWhatItCan) {
  Nvml nvml(AB_FAKE_NVML_OLD);
  ASSERT_EQ(nvml.why_not(), "");
  EXPECT_EQ(nvml.driver_version(), "");
  const Nvml::Handle gpu = nvml.find(kPci);
  const GpuReading r = nvml.read(gpu);
  EXPECT_DOUBLE_EQ(figure(r, Metric::kGpuUtilisation), 0.93);
  EXPECT_TRUE(std::isnan(figure(r, Metric::kGpuPower)));
  EXPECT_TRUE(std::isnan(figure(r, Metric::kGpuXid)));
  EXPECT_EQ(throttled(r, 0), 0);
  EXPECT_EQ(throttled(r, 1), 1);
  EXPECT_EQ(throttled(r, 2), 1);
  EXPECT_LT(nvml.nvlinks(gpu), 0);
}

TEST_F(NvmlTest, WithoutLibraryDriverOrGpuNothingIsKnown) {
  Nvml none("libno-such-library.so.1");
  EXPECT_THAT(none.why_not(), HasSubstr("libno-such-library.so.1"));
  EXPECT_EQ(none.find(kPci), nullptr);
  EXPECT_TRUE(std::isnan(none.read(nullptr)[0]));
  EXPECT_EQ(none.driver_version(), "");
  tell("no driver");
  Nvml stopped(AB_FAKE_NVML);
  EXPECT_THAT(stopped.why_not(), HasSubstr("does not start"));
  EXPECT_EQ(stopped.find(kPci), nullptr);
  unsetenv("FAKE_NVML");
  EXPECT_EQ(Nvml(AB_FAKE_NVML).find("0000:00:00.0"), nullptr);
  const GpuSampler absent(kPci, GpuSampler::kEvery, "libno-such-library.so.1");
  EXPECT_FALSE(absent.present());
  EXPECT_TRUE(std::isnan(absent.latest()[0]));
}

TEST_F(NvmlTest, ASamplerReadsOnItsOwn) {
  tell("rising");
  const auto start = std::chrono::steady_clock::now();
  const GpuSampler sampler(kPci, std::chrono::milliseconds(1), AB_FAKE_NVML);
  ASSERT_TRUE(sampler.present());
  const double first = figure(sampler.latest(), Metric::kGpuUtilisation);
  EXPECT_GT(first, 0);  // at once
  while (figure(sampler.latest(), Metric::kGpuUtilisation) <= first) {
    ASSERT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace
}  // namespace anabranch
