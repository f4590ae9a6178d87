#include "runtime/sweep/record.h"

#include <fstream>

#include <gtest/gtest.h>

#include "core/base/error.h"
#include "tests/runtime/sweep/sweeps.h"
#include "tests/support/temp_dir.h"

namespace anabranch {
namespace {

TEST(SweepRecord, ReadsAsItWasWritten) {
  const SweepOptions options{.scale = SweepScale::kTiny, .sets = {"data.path=\"a b\""}};
  SweepRecord written = record_of(test::tree_sweep("cmollm", options), options);
  written.stop_early = EarlyStop{LossKind::kLoss, 0, 7, 0.25, 0.75, {"size", "family"}};
  const test::TempDir dir;
  std::ofstream(dir / "sweep.json") << record_json(written);
  const SweepRecord read = read_record(dir.path().string());
  EXPECT_EQ(record_json(read), record_json(written));
  EXPECT_EQ(read.name, "cmollm-tiny");
  EXPECT_EQ(read.scale, SweepScale::kTiny);
  EXPECT_EQ(read.stop_early, written.stop_early);
  EXPECT_EQ(read.sets, options.sets);
  EXPECT_EQ(read.points.size(), 141U);
  EXPECT_EQ(read.runs.size(), 423U);
  EXPECT_EQ(read.runs[4].point, 1U);
  const RecordedPoint& point = read.points[4];
  EXPECT_EQ(point.setting("size"), "85m");
  EXPECT_EQ(point.setting("model.streams"), point.id.substr(point.id.rfind('n') + 1));
  EXPECT_EQ(point.setting("model.blocks"), "");
  EXPECT_EQ(point.tokens(), 2 * 2 * 2 * 16);
}

TEST(SweepRecord, ADamagedOneIsBadData) {
  const test::TempDir dir;
  EXPECT_THROW(read_record(dir.path().string()), Error);
  std::ofstream(dir / "sweep.json") << "{\"sweep\": 3}";
  EXPECT_THROW(read_record(dir.path().string()), Error);
}

}  // namespace
}  // namespace anabranch
