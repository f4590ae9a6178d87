#include "runtime/planner/machine.h"

#include <filesystem>

#include "core/base/error.h"
#include "runtime/planner/fit.h"
#include "tests/data/folder.h"
#include "tests/runtime/planner/machines.h"

namespace anabranch {
namespace {

TEST(Machine, ReadsBackWhatItWrites) {
  const Machine m = test::tiny_machine();
  const std::string text = dump_machine(m);
  EXPECT_EQ(parse_machine(text, "again"), m) << text;
  Machine alone = m;
  alone.links.clear();
  EXPECT_EQ(parse_machine(dump_machine(alone), "alone"), alone);
}

TEST(Machine, EveryFileOfTheProjectIsReadAndHasItsSources) {
  int files = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(AB_SOURCE_DIR) + "/configs/machines")) {
    if (entry.path().extension() != ".yaml") continue;
    const Machine m = load_machine(entry.path().string());
    EXPECT_EQ(m.name, entry.path().stem().string());
    EXPECT_NE(m.link(LinkLevel::kHost), nullptr) << m.name;
    EXPECT_NE(m.link(LinkLevel::kNetwork), nullptr) << m.name;
    EXPECT_GT(m.product_rate(DType::kBF16, 1), 0) << m.name;
    ++files;
  }
  EXPECT_EQ(files, 4);
}

TEST(Machine, AMistypedKeyIsNamedWithItsLineAndTheNearest) {
  std::string text = dump_machine(test::tiny_machine());
  const std::string from = "product_share";
  text.replace(text.find(from), from.size(), "product_shar");
  test::expect_error(Fault::kConfig, {"tiny.yaml:", "product_shar", "product_share"},
                     [&] { (void)parse_machine(text, "tiny.yaml"); });
}

TEST(Machine, FiguresWithoutASourceAndFallingCurvesAreRefusedTogether) {
  Machine m = test::tiny_machine();
  m.device.memory.source.clear();
  m.device.bandwidth = Figure();
  m.device.product_share.value = 1.5;
  m.links[0].curve[1].bytes = 10;
  test::expect_error(Fault::kConfig,
                     {"device.memory.source", "device.bandwidth is not set",
                      "device.product_share.value is 1.5", "links[0].curve[1].bytes does not rise"},
                     [&] { (void)parse_machine(dump_machine(m), "tiny.yaml"); });
}

TEST(Machine, WhatIsDividedByIsNotZeroAndDevicesAreWhole) {
  Machine m = test::tiny_machine();
  m.device.product_share.value = 0;
  m.device.memory.value = 0;
  m.host.devices.value = 2.5;
  test::expect_error(Fault::kConfig,
                     {"device.product_share.value is 0", "device.memory.value is 0",
                      "host.devices.value is 2.5: must be a whole number"},
                     [&] { (void)parse_machine(dump_machine(m), "tiny.yaml"); });
}

TEST(Machine, ACurveIsStraightInBothLogarithms) {
  LinkFigures link;
  link.curve = {{100, 10, "x"}, {10000, 1000, "x"}};
  EXPECT_DOUBLE_EQ(link.bandwidth(100), 10);
  EXPECT_NEAR(link.bandwidth(1000), 100, 1e-9);
  EXPECT_DOUBLE_EQ(link.bandwidth(1e9), 1000);
  EXPECT_DOUBLE_EQ(link.bandwidth(50), 5);  // as long as 100 bytes take
}

TEST(Machine, RanksOfACpuShareItsCoresAndGpusAreWhole) {
  Machine m = test::tiny_machine();
  m.host.devices.value = 8;
  EXPECT_DOUBLE_EQ(m.memory(4), m.device.memory.value);
  m.device.kind = DeviceKind::kCpu;
  EXPECT_DOUBLE_EQ(m.memory(4), 2 * m.device.memory.value);
  EXPECT_DOUBLE_EQ(m.softmax_seconds(1e6, 4e6, 8), 16e6 / 5e10);
  m.device.softmax = {1e6, "made up"};
  EXPECT_DOUBLE_EQ(m.softmax_seconds(1e6, 4e6, 8), 1);
  m.device.peak.bf16 = Figure();
  test::expect_error(Fault::kConfig, {"no device.peak.bf16"},
                     [&] { (void)m.product_rate(DType::kBF16, 1); });
}

TEST(FitLink, FindsLatencyAndBandwidthOfTimingsThatHaveThem) {
  constexpr int kRanks = 4;  // two doublings
  constexpr double kLatency = 1e-5, kBandwidth = 2e9;
  std::vector<CommTiming> timings;
  for (const CollectiveKind kind : {CollectiveKind::kAllReduceSum, CollectiveKind::kAllGather}) {
    const bool twice = kind == CollectiveKind::kAllReduceSum;
    for (const int64_t bytes : {int64_t{8}, int64_t{65536}, int64_t{1} << 24}) {
      const double moved = static_cast<double>(bytes) * 0.75 * (twice ? 2 : 1);
      timings.push_back({kind, bytes, 2 * kLatency * (twice ? 2 : 1) + moved / kBandwidth});
    }
  }
  const LinkFigures link = fit_link(timings, kRanks, LinkLevel::kHost, "made up");
  EXPECT_NEAR(link.latency.value, kLatency, 0.01 * kLatency);
  ASSERT_EQ(link.curve.size(), 2U);
  EXPECT_EQ(link.curve[0].bytes, 65536);
  for (const CurvePoint& p : link.curve) EXPECT_NEAR(p.bandwidth, kBandwidth, 0.01 * kBandwidth);
}

}  // namespace
}  // namespace anabranch
