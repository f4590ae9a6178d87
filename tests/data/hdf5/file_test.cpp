#include "data/hdf5/file.h"

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <sys/resource.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/crc32c.h"
#include "core/base/error.h"
#include "core/base/philox.h"
#include "tests/data/folder.h"

namespace anabranch {
namespace {

using test::expect_error;
using test::Folder;

std::string write_sample(const Folder& folder, const std::string& name) {
  const std::string path = folder.path(name);
  Hdf5Writer out(path);
  out.set("format_version", int64_t{1});
  out.set("name", std::string("a sample"));
  out.set("rate", 0.25);
  out.add("tokens", Hdf5Type::kU16, {1000});
  out.add("model/layer/w", Hdf5Type::kBF16, {3, 4});
  out.add("nothing", Hdf5Type::kF32, {0});
  out.set("slice", int64_t{7}, "model/layer/w");
  out.lay_out();
  std::vector<uint16_t> tokens(1000);
  std::iota(tokens.begin(), tokens.end(), uint16_t{0});
  out.write("tokens", tokens.data(), 1200, 800);
  out.write("tokens", tokens.data(), 800);
  std::vector<uint16_t> w(12, 0x3F80);
  EXPECT_EQ(out.write("model/layer/w", w.data(), 24), crc32c(w.data(), 24));
  EXPECT_FALSE(std::filesystem::exists(path));
  out.commit();
  return path;
}

TEST(Hdf5, ReadsWhatItWrote) {
  const Folder folder;
  const Hdf5Reader in(write_sample(folder, "a.h5"));
  ASSERT_EQ(in.data_sets().size(), 3U);
  const Hdf5DataSet& w = in.require("model/layer/w", Hdf5Type::kBF16, 2);
  EXPECT_EQ(w.shape, (std::vector<int64_t>{3, 4}));
  EXPECT_EQ(in.int_attribute("slice", "model/layer/w"), 7);
  EXPECT_EQ(in.int_attribute("format_version"), 1);
  EXPECT_EQ(in.string_attribute("name"), "a sample");
  EXPECT_EQ(in.double_attribute("rate"), 0.25);
  EXPECT_TRUE(in.has_attribute("rate"));
  EXPECT_FALSE(in.has_attribute("rate", "tokens"));
  const auto tokens = in.read_all<uint16_t>("tokens", Hdf5Type::kU16);
  EXPECT_EQ(tokens[0], 0);
  EXPECT_EQ(tokens[399], 399);
  EXPECT_EQ(tokens[400], 0);
  EXPECT_EQ(tokens[999], 599);
  EXPECT_TRUE(in.read_all<float>("nothing", Hdf5Type::kF32).empty());
}

TEST(Hdf5, EqualInputGivesEqualBytes) {
  const Folder folder;
  const std::string a = write_sample(folder, "a.h5"), b = write_sample(folder, "b.h5");
  EXPECT_EQ(test::slurp(a), test::slurp(b));
}

TEST(Hdf5, TheSkeletonComesBeforeTheContents) {
  const Folder folder;
  const Hdf5Reader in(write_sample(folder, "a.h5"));
  EXPECT_GE(in.require("tokens", Hdf5Type::kU16, 1).offset, 2048);
  EXPECT_LT(in.file_bytes(), 200000);
}

TEST(Hdf5, SaysWhatIsWrongWithAFile) {
  const Folder folder;
  const std::string path = write_sample(folder, "a.h5");
  const Hdf5Reader in(path);
  expect_error(Fault::kData, {path, "no data set 'x'", "tokens"},
               [&] { (void)in.require("x", Hdf5Type::kU16, 1); });
  expect_error(Fault::kData, {path, "uint16", "float32"},
               [&] { (void)in.require("tokens", Hdf5Type::kF32, 1); });
  expect_error(Fault::kData, {path, "1 axes", "expected 2"},
               [&] { (void)in.require("tokens", Hdf5Type::kU16, 2); });
  expect_error(Fault::kData, {path, "no attribute 'x'"}, [&] { (void)in.int_attribute("x"); });
  expect_error(Fault::kData, {path, "not an integer"}, [&] { (void)in.int_attribute("name"); });
  expect_error(Fault::kData, {"none.h5", "no such file"},
               [&] { const Hdf5Reader none(folder.path("none.h5")); });
  test::spill(folder.path("empty.h5"), "");
  expect_error(Fault::kData, {"empty.h5", "is empty"},
               [&] { const Hdf5Reader none(folder.path("empty.h5")); });
  test::spill(folder.path("text.h5"), std::string(5000, 'x'));
  expect_error(Fault::kData, {"text.h5", "not an HDF5 file"},
               [&] { const Hdf5Reader none(folder.path("text.h5")); });
}

TEST(Hdf5, ATruncatedFileIsRefusedAtAnyLength) {
  const Folder folder;
  const std::string whole = test::slurp(write_sample(folder, "a.h5"));
  for (size_t size = 1; size < whole.size(); size += size < 4000 ? 97 : 1500) {
    test::spill(folder.path("cut.h5"), whole.substr(0, size));
    expect_error(Fault::kData, {"cut.h5"}, [&] { const Hdf5Reader in(folder.path("cut.h5")); });
  }
}

// Whatever is damaged in the skeleton, the file is read or refused.
TEST(Hdf5, ADamagedSkeletonNeverCrashes) {
  const Folder folder;
  const std::string whole = test::slurp(write_sample(folder, "a.h5"));
  int refused = 0;
  for (uint64_t i = 0; i < 400; ++i) {
    std::string bytes = whole;
    for (uint64_t k = 0; k < 4; ++k) {
      const PhiloxBlock random = philox(i, k);
      bytes[random[0] % 3000] = static_cast<char>(random[2] % 2 == 0 ? 0xFFU : random[1] % 256);
    }
    test::spill(folder.path("b.h5"), bytes);
    try {
      const Hdf5Reader in(folder.path("b.h5"));
      for (const Hdf5DataSet& found : in.data_sets()) {
        std::vector<char> contents(static_cast<size_t>(found.bytes()));
        if (found.offset >= 0) in.read(found, contents.data(), found.bytes());
      }
    } catch (const Error& error) {
      ++refused;
      EXPECT_EQ(error.fault(), Fault::kData) << error.what();
      EXPECT_THAT(error.what(), testing::HasSubstr("b.h5"));
    }
  }
  EXPECT_GT(refused, 50);
}

// Two cases of that file share their weights: one group, two links.
TEST(Hdf5, AGroupMayHaveSeveralNames) {
  const Hdf5Reader in(std::string(AB_SOURCE_DIR) + "/tests/reference/moep.h5");
  const auto& first = in.require("ec_batch/weights/wte.weight", Hdf5Type::kF64, 2);
  EXPECT_EQ(in.require("token_choice/weights/wte.weight", Hdf5Type::kF64, 2).offset, first.offset);
}

// Written by h5py: other types of attributes and headers than ours.
TEST(Hdf5, ReadsFilesOfH5py) {
  const Hdf5Reader in(std::string(AB_SOURCE_DIR) + "/tests/reference/ops.h5");
  EXPECT_EQ(in.require("adamw/g", Hdf5Type::kF64, 1).count(), 23);
  EXPECT_GT(in.data_sets().size(), 100U);
}

TEST(Hdf5, AnUncommittedFileVanishes) {
  const Folder folder;
  {
    Hdf5Writer out(folder.path("a.h5"));
    out.add("x", Hdf5Type::kF64, {10});
    out.lay_out();
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

// A limit on file sizes stands in for a full disk: both refuse the reservation.
TEST(Hdf5, AFullDiskIsAnErrorBeforeAnythingIsWritten) {
  const Folder folder;
  const auto before = std::signal(SIGXFSZ, SIG_IGN);
  rlimit old{};
  getrlimit(RLIMIT_FSIZE, &old);
  const rlimit low{1 << 20, old.rlim_max};
  test::spill(folder.path("a.h5"), "the old file");
  setrlimit(RLIMIT_FSIZE, &low);
  expect_error(Fault::kIo, {"a.h5"}, [&] {
    Hdf5Writer out(folder.path("a.h5"));
    out.add("x", Hdf5Type::kF64, {1 << 20});
    out.lay_out();
  });
  setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, before);
  EXPECT_EQ(test::slurp(folder.path("a.h5")), "the old file");
  EXPECT_FALSE(std::filesystem::exists(folder.path("a.h5.tmp")));
}

}  // namespace
}  // namespace anabranch
