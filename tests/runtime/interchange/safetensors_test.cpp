#include "runtime/interchange/safetensors.h"

#include <bit>
#include <cstring>
#include <fstream>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tensors.h"

namespace anabranch {
namespace {

using testing::HasSubstr;

// The bytes of a file with this header, its length before it.
std::string file_of(const std::string& header, const std::string& data) {
  const auto length = static_cast<uint64_t>(header.size());
  std::string file(sizeof length, '\0');
  std::memcpy(file.data(), &length, sizeof length);
  return file + header + data;
}

std::string entry(const std::string& name, const std::string& type, const std::string& shape,
                  const std::string& offsets) {
  return join('"', name, R"(":{"dtype":")", type, R"(","shape":)", shape, R"(,"data_offsets":)",
              offsets, '}');
}

// A header of such entries.
std::string object(const std::string& entries) { return join('{', entries, '}'); }

std::string bytes(size_t count) { return std::string(count, '\0'); }

class Safetensors : public testing::Test {
 protected:
  [[nodiscard]] std::string write(const std::string& content) const {
    std::ofstream(path_, std::ios::binary) << content;
    return path_;
  }

  // What the reader refuses a file with; "accepted" if it takes it.
  [[nodiscard]] std::string refused(const std::string& content) const {
    try {
      const SafetensorsReader reader(write(content));
      return "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.fault(), Fault::kData) << error.what();
      EXPECT_THAT(error.what(), HasSubstr(path_));
      return error.what();
    }
  }

  [[nodiscard]] std::string refused(const std::string& header, size_t data) const {
    return refused(file_of(header, bytes(data)));
  }

  const test::TempDir dir_;
  const std::string path_ = (dir_ / "x.safetensors").string();
};

TEST_F(Safetensors, ReadsBackWhatItWrites) {
  const Tensor a = test::random({3, 5}, 1, DType::kF32), b = test::random({4}, 2, DType::kF64);
  const Tensor c = test::random({2, 2, 2}, 3, DType::kBF16), none({0, 7}, DType::kF32);
  write_safetensors(path_,
                    {StateItem::whole("c", c), StateItem::whole("a", a), StateItem::whole("b", b),
                     StateItem::whole("none", none)},
                    {{"format", "pt"}});
  const SafetensorsReader reader(path_);
  EXPECT_EQ(reader.metadata().at("format"), "pt");
  ASSERT_EQ(reader.entries().size(), 4U);
  for (const SafetensorsEntry& e : reader.entries()) {
    EXPECT_EQ(e.offset % (e.type == "F64" ? 8 : 4), 0) << e.name;
  }
  for (const auto& [name, want] : {std::pair{"a", a}, {"b", b}, {"c", c}, {"none", none}}) {
    const SafetensorsEntry* e = reader.find(name);
    ASSERT_NE(e, nullptr) << name;
    EXPECT_EQ(e->shape, want.shape());
    Tensor got(want.shape(), accumulator_of(want.dtype()));
    reader.read(*e, got);
    EXPECT_EQ(test::values(got), test::values(want)) << name;
  }
  EXPECT_EQ(reader.find("d"), nullptr);
}

// Every half there is: against its definition.
TEST_F(Safetensors, HalvesAreExact) {
  std::string data;
  std::vector<double> want;
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const uint32_t exponent = bits >> 10U & 0x1FU, fraction = bits & 0x3FFU;
    if (exponent == 0x1F) continue;
    data += static_cast<char>(bits & 0xFFU);
    data += static_cast<char>(bits >> 8U);
    const double magnitude = exponent == 0
                                 ? fraction * std::pow(2.0, -24)
                                 : (1 + fraction / 1024.0) * std::pow(2.0, exponent - 15.0);
    want.push_back((bits & 0x8000U) != 0 ? -magnitude : magnitude);
  }
  const std::string count = std::to_string(want.size());
  const SafetensorsReader reader(write(file_of(
      object(entry("h", "F16", join('[', count, ']'), join("[0,", data.size(), ']'))), data)));
  Tensor got({std::ssize(want)}, DType::kF32);
  reader.read(reader.entries().front(), got);
  EXPECT_EQ(test::values(got), want);
}

TEST_F(Safetensors, WhatIsNotFiniteOrNoWeightIsNamed) {
  const auto why = [&](const std::string& type, const std::string& data) {
    const std::string size = std::to_string(data.size());
    const SafetensorsReader reader(
        write(file_of(object(entry("w", type, "[1]", join("[0,", size, ']'))), data)));
    Tensor to({1}, DType::kF32);
    try {
      reader.read(reader.entries().front(), to);
    } catch (const Error& error) {
      EXPECT_EQ(error.fault(), Fault::kData);
      EXPECT_THAT(error.what(), HasSubstr(path_ + ": tensor \"w\""));
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  const auto raw = [](auto value) {
    std::string data(sizeof value, '\0');
    std::memcpy(data.data(), &value, sizeof value);
    return data;
  };
  EXPECT_EQ(why("F32", raw(1.0F)), "accepted");
  EXPECT_THAT(why("F32", raw(std::numeric_limits<float>::quiet_NaN())), HasSubstr("not finite"));
  EXPECT_THAT(why("F64", raw(1e300)), HasSubstr("not finite"));  // beyond float32
  EXPECT_THAT(why("F16", raw(uint16_t{0x7C00})), HasSubstr("not finite"));
  EXPECT_THAT(why("BF16", raw(uint16_t{0x7F80})), HasSubstr("not finite"));
  EXPECT_THAT(why("I64", raw(int64_t{1})), HasSubstr("type I64; weights are"));
  EXPECT_THAT(why("BOOL", raw(true)), HasSubstr("type BOOL; weights are"));
}

TEST_F(Safetensors, LengthsAreHeldAgainstTheFile) {
  EXPECT_THAT(refused(""), HasSubstr("0 bytes"));
  EXPECT_THAT(refused("1234567"), HasSubstr("7 bytes"));
  EXPECT_THAT(refused(bytes(8)), HasSubstr("no JSON object"));
  EXPECT_THAT(refused(std::string(8, '\xFF') + "{}"), HasSubstr("only 2 bytes follow"));
  std::string whole = file_of(object(entry("a", "F32", "[2]", "[0,8]")), bytes(8));
  EXPECT_EQ(refused(whole), "accepted");
  for (size_t cut = 0; cut < whole.size(); ++cut) {
    EXPECT_NE(refused(whole.substr(0, cut)), "accepted") << cut;
  }
  EXPECT_THAT(refused(whole.substr(0, whole.size() - 1)), HasSubstr("truncated"));
  EXPECT_THAT(refused(whole + "x"), HasSubstr("1 bytes behind the last tensor"));
}

TEST_F(Safetensors, AHeaderBeyondTheFormatsLimitIsNotRead) {
  const std::string file = write("");
  const uint64_t length = 100'000'001;
  std::ofstream(file, std::ios::binary).write(reinterpret_cast<const char*>(&length), 8);
  std::filesystem::resize_file(file, length + 8);  // a hole
  try {
    const SafetensorsReader reader(file);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("more than the 100000000"));
  }
}

TEST_F(Safetensors, TensorsLieOneBehindTheOther) {
  const auto two = [&](const std::string& first, const std::string& second, size_t data) {
    return refused(object(entry("a", "F32", "[2]", first) + "," + entry("b", "F32", "[1]", second)),
                   data);
  };
  EXPECT_EQ(two("[0,8]", "[8,12]", 12), "accepted");
  EXPECT_EQ(two("[4,12]", "[0,4]", 12), "accepted");
  EXPECT_THAT(two("[0,8]", "[4,8]", 8), HasSubstr("\"b\" begins at byte 4 of the data, and over"));
  EXPECT_THAT(two("[0,8]", "[12,16]", 16),
              HasSubstr("\"b\" begins at byte 12 of the data, and le"));
  EXPECT_THAT(two("[4,12]", "[12,16]", 16), HasSubstr("\"a\" begins at byte 4"));
  EXPECT_THAT(two("[0,8]", "[8,12]", 11), HasSubstr("\"b\" ends at byte 12 of the data, of which"));
  EXPECT_THAT(two("[0,12]", "[12,16]", 16), HasSubstr("\"a\": F32[2] is of 8 bytes"));
  EXPECT_THAT(two("[8,0]", "[8,12]", 12), HasSubstr("\"a\""));
}

TEST_F(Safetensors, ShapesCannotOverflow) {
  const auto one = [&](const std::string& type, const std::string& shape,
                       const std::string& offsets) {
    return refused(object(entry("a", type, shape, offsets)), 8);
  };
  EXPECT_EQ(one("F32", "[2]", "[0,8]"), "accepted");
  EXPECT_EQ(one("F64", "[]", "[0,8]"), "accepted");
  EXPECT_THAT(one("F32", "[4294967296,4294967296]", "[0,0]"), HasSubstr("memory could hold"));
  EXPECT_THAT(one("F32", "[4611686018427387906]", "[0,8]"), HasSubstr("memory could hold"));
  EXPECT_THAT(one("F32", "[-2]", "[0,8]"), HasSubstr("found -2, where a whole number belongs"));
  EXPECT_THAT(one("F32", "[18446744073709551615]", "[0,8]"), HasSubstr("found 184467440737095516"));
  EXPECT_THAT(one("F32", "[99999999999999999999]", "[0,8]"), HasSubstr("found 9999999"));
  EXPECT_THAT(one("F32", "[2.0]", "[0,8]"), HasSubstr("found 2.0"));
  EXPECT_THAT(one("F32", "[1,1,1,1,1,1,2]", "[0,8]"), HasSubstr("more than 6 numbers"));
  EXPECT_THAT(one("F32", "[2]", "[0]"), HasSubstr("not two numbers"));
  EXPECT_THAT(one("F32", "[2]", "[0,8,8]"), HasSubstr("not two numbers"));
  EXPECT_THAT(one("F33", "[2]", "[0,8]"), HasSubstr("unknown type \"F33\""));
  EXPECT_THAT(one("F32", "[2]", "[0,18446744073709551615]"), HasSubstr("found 18446744"));
}

TEST_F(Safetensors, HeadersAreTakenStrictly) {
  const std::string good = entry("a", "F32", "[2]", "[0,8]");
  EXPECT_EQ(refused(object(good) + "   ", 8), "accepted");
  EXPECT_THAT(refused(object(good + "," + good), 8), HasSubstr("\"a\": comes twice"));
  EXPECT_THAT(refused(R"({"a":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8),
              HasSubstr("\"dtype\" comes twice"));
  EXPECT_THAT(refused(R"({"a":{"dtype":"F32","shape":[2]}})", 8),
              HasSubstr("data_offsets is missing"));
  EXPECT_THAT(refused(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"x":1}})", 8),
              HasSubstr("unknown field \"x\""));
  EXPECT_THAT(refused(R"({"__metadata__":{"a":1}})", 0), HasSubstr("where a string belongs"));
  EXPECT_THAT(refused(R"({"__metadata__":{},"__metadata__":{}})", 0), HasSubstr("comes twice"));
  EXPECT_EQ(refused(R"({"__metadata__":{"a":"b"}})", 0), "accepted");
  EXPECT_THAT(refused("[]", 0), HasSubstr("no JSON object"));
  EXPECT_THAT(refused(" {}", 0), HasSubstr("no JSON object"));
  EXPECT_THAT(refused("{} x", 0), HasSubstr("no JSON"));
  EXPECT_THAT(refused(std::string("{}\0 x", 5), 0), HasSubstr("no JSON object"));
  EXPECT_THAT(refused("{\"\xC3\":{}}", 0), HasSubstr("no JSON"));
  EXPECT_THAT(refused(R"({"a":null})", 0), HasSubstr("found null, where an object belongs"));
  EXPECT_THAT(refused(R"({"a":{"dtype":true}})", 0), HasSubstr("found true, where a string"));
  EXPECT_THAT(refused(R"({"a":{"shape":{}}})", 0), HasSubstr("where a list belongs"));
}

// Neither the stack nor memory goes with what is nested or repeated.
TEST_F(Safetensors, BracketsByTheMillionEndAtTheFirst) {
  const size_t many = 1 << 20;
  EXPECT_THAT(refused(R"({"a":)" + std::string(many, '['), 0), HasSubstr("found [, where"));
  EXPECT_THAT(refused(R"({"a":{"shape":)" + std::string(many, '['), 0), HasSubstr("found ["));
  std::string objects;
  for (size_t i = 0; i < many; ++i) objects += "{\"a\":";
  EXPECT_NE(refused(objects, 0), "accepted");
}

}  // namespace
}  // namespace anabranch
