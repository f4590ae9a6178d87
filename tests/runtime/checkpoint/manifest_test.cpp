#include "runtime/checkpoint/manifest.h"

#include <cstring>
#include <tuple>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "core/base/crc32c.h"
#include "core/base/error.h"

namespace anabranch {
namespace {

// Indices [begin, begin + length) of an axis of a [4, 6] tensor.
CheckpointEntry part(int axis, int64_t begin, int64_t length) {
  const Part p{{4, 6}, axis, begin, length};
  return {"h.0.w", p, 0, p.count(), DType::kF32, 0, "rank-0000.h5"};
}

// Elements [from, from + count) of such a part.
CheckpointEntry run(CheckpointEntry e, int64_t from, int64_t count) {
  e.from = from;
  e.count = count;
  return e;
}

TEST(Manifest, CoverageIsProven) {
  const CheckpointEntry all = part(0, 0, 4);
  const std::vector<std::vector<CheckpointEntry>> whole{
      {all},
      {part(0, 2, 2), part(0, 0, 2)},
      {part(1, 0, 1), part(1, 3, 3), part(1, 1, 2)},
      {run(all, 20, 4), run(all, 0, 7), run(all, 7, 13)},
      {run(part(1, 0, 2), 0, 3), part(1, 2, 4), run(part(1, 0, 2), 3, 5)},
      {part(0, 0, 1), run(all, 6, 18), run(part(1, 3, 2), 4, 0)},  // and one of nothing
  };
  for (size_t i = 0; i < whole.size(); ++i) {
    Manifest m;
    m.entries = whole[i];
    EXPECT_NO_THROW(m.check_coverage()) << i;
  }
  const std::vector<std::pair<std::vector<CheckpointEntry>, const char*>> broken{
      {{part(0, 0, 2), part(0, 3, 1)}, "element 12 of 24"},
      {{part(0, 0, 3), part(0, 2, 2)}, "twice at element 12"},
      {{part(0, 0, 3)}, "element 18 of 24"},
      {{all, all}, "twice at element 0"},
      {{part(1, 0, 3), part(1, 2, 4)}, "twice at element 2"},
      {{part(1, 0, 3), part(1, 4, 2)}, "element 3 of 24"},
      {{run(all, 0, 7), run(all, 8, 16)}, "element 7 of 24"},
      {{run(all, 0, 7), run(all, 6, 18)}, "twice at element 6"},
      {{run(all, 0, 7), run(all, 7, 13)}, "element 20 of 24"},
      {{run(part(1, 0, 2), 0, 3), part(1, 2, 4), run(part(1, 0, 2), 4, 4)}, "element 7 of 24"},
      {{run(part(1, 0, 2), 0, 5), part(1, 2, 4), run(part(1, 0, 2), 4, 4)}, "at element 12"},
      {{part(0, 0, 2), part(1, 0, 6)}, "twice at element 0"},
  };
  for (const auto& [entries, what] : broken) {
    Manifest m;
    m.entries = entries;
    try {
      m.check_coverage();
      ADD_FAILURE() << what;
    } catch (const Error& error) {
      EXPECT_EQ(error.fault(), Fault::kData);
      EXPECT_NE(std::string(error.what()).find("h.0.w"), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find(what), std::string::npos) << error.what();
    }
  }
}

TEST(Manifest, SlicesThatDisagreeAreRefused) {
  Manifest m;
  m.entries = {part(0, 0, 2), part(0, 2, 2)};
  m.entries[1].type = DType::kF64;
  EXPECT_THROW(m.check_coverage(), Error);
  m.entries[1] = {"h.0.w", {{4, 7}, 0, 2, 2}, 0, 14, DType::kF32, 0, "rank-0000.h5"};
  EXPECT_THROW(m.check_coverage(), Error);
}

TEST(Manifest, ReadsFormatOne) {
  nlohmann::json document = {{"format", 1},
                             {"step", 7},
                             {"next_sample", 84},
                             {"counters", {{"tokens", {1344.0}}}},
                             {"facts", {{"ranks", "2"}}},
                             {"entries",
                              {{{"name", "w"},
                                {"shape", {5, 3}},
                                {"begin", 0},
                                {"length", 2},
                                {"type", "float32"},
                                {"crc32c", 11},
                                {"file", "rank-0000.h5"}},
                               {{"name", "w"},
                                {"shape", {5, 3}},
                                {"begin", 2},
                                {"length", 3},
                                {"type", "float32"},
                                {"crc32c", 12},
                                {"file", "rank-0001.h5"}}}}};
  const std::string text = document.dump();
  document["manifest_crc32c"] = crc32c(text.data(), text.size());
  const Manifest m = Manifest::parse(document.dump(1), "manifest.json");
  EXPECT_EQ(m.step, 7);
  ASSERT_EQ(m.entries.size(), 2U);
  EXPECT_EQ(m.entries[1].part, (Part{{5, 3}, 0, 2, 3}));
  EXPECT_EQ(m.entries[1].from, 0);
  EXPECT_EQ(m.entries[1].count, 9);
  EXPECT_EQ(m.entries[1].file, "rank-0001.h5");
  EXPECT_EQ(Manifest::parse(m.json(), "again").json(), m.json());
}

TEST(Manifest, HostileTextIsRefused) {
  for (const std::string text :
       {"", "{", "[]", "null", "{\"format\": 1}", R"({"format": 99, "manifest_crc32c": 0})"}) {
    EXPECT_THROW((void)Manifest::parse(text, "manifest.json"), Error) << text;
  }
  const std::string entry =
      R"([{"name":"w","shape":[2,3],"axis":AXIS,"begin":BEGIN,"length":1,"from":FROM,"count":3,)"
      R"("type":"float32","crc32c":0,"file":"FILE"}])";
  const auto with = [&](const std::string& axis, const std::string& begin, const std::string& from,
                        const std::string& file) {
    std::string text = entry;
    for (const auto& [word, value] : {std::pair{"AXIS", axis}, {"BEGIN", begin}, {"FROM", from}}) {
      text.replace(text.find(word), std::strlen(word), value);
    }
    return text.replace(text.find("FILE"), 4, file);
  };
  EXPECT_EQ(parse_entries(with("0", "1", "0", "x"), "list").size(), 1U);
  for (const std::string file : {"../x", "/etc/passwd", ".x", ""}) {
    EXPECT_THROW((void)parse_entries(with("0", "1", "0", file), "list"), Error) << file;
  }
  for (const auto& [axis, begin, from] : {std::tuple{"2", "0", "0"},
                                          {"-1", "0", "0"},
                                          {"0", "2", "0"},
                                          {"0", "-1", "0"},
                                          {"0", "9223372036854775807", "0"},
                                          {"0", "0", "1"},
                                          {"0", "0", "-1"},
                                          {"1", "0", "9223372036854775807"}}) {
    EXPECT_THROW((void)parse_entries(with(axis, begin, from, "x"), "list"), Error)
        << axis << " " << begin << " " << from;
  }
  std::string huge = with("0", "1", "0", "x");
  huge.replace(huge.find("[2,3]"), 5, "[4294967296,4294967296]");
  EXPECT_THROW((void)parse_entries(huge, "list"), Error);
}

}  // namespace
}  // namespace anabranch
