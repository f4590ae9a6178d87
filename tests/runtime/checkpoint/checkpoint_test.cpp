#include <csignal>
#include <filesystem>
#include <fstream>
#include <sys/resource.h>

#include <gtest/gtest.h>

#include "core/base/error.h"
#include "runtime/checkpoint/reader.h"
#include "runtime/checkpoint/saver.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tensors.h"

namespace anabranch {
namespace {
namespace fs = std::filesystem;

std::vector<StateItem> state(uint32_t seed) {
  std::vector<StateItem> items;
  const std::vector<std::pair<std::string, Shape>> tensors = {{"wte.weight", {17, 5}},
                                                              {"adamw.m/wte.weight", {17, 5}},
                                                              {"h.0.ln_1.bias", {5}},
                                                              {"ln_f.weight", {5}},
                                                              {"empty", {0}}};
  items.reserve(tensors.size());
  for (const auto& [name, shape] : tensors) {
    items.push_back(StateItem::whole(name, test::random(shape, seed++, DType::kF32)));
  }
  return items;
}

// Runs the whole save of a step by `ranks` ranks that all have `items`, one after another in this
// process.
void save(const fs::path& dir, int64_t step, std::vector<StateItem> items, int ranks = 1,
          CheckpointSaver::Retention keep = {3, 0}) {
  for (StateItem& item : items) item.holders = {0, 1, ranks};
  std::vector<std::unique_ptr<CheckpointSaver>> savers;
  Manifest header;
  header.step = step;
  header.next_sample = 10 * step;
  header.counters["guard"] = {1, 0.1};
  for (int r = 0; r < ranks; ++r) {
    savers.push_back(
        std::make_unique<CheckpointSaver>(CheckpointDirectory(dir), r, ranks, keep, nullptr));
    savers.back()->start(header, items);
  }
  for (auto& saver : savers) {
    saver->join();
    ASSERT_EQ(saver->phase(), CheckpointSaver::Phase::kWritten) << saver->error();
  }
  for (auto& saver : savers) {
    saver->publish();
    saver->join();
    ASSERT_EQ(saver->phase(), CheckpointSaver::Phase::kIdle) << saver->error();
  }
}

std::optional<Manifest> load(const fs::path& dir, std::vector<StateItem>& items,
                             std::vector<std::string>* warnings = nullptr) {
  const CheckpointDirectory directory(dir);
  return load_newest(directory, directory.steps(), items, {}, {[](bool ok) { return ok; }},
                     [&](const std::string& w) {
                       if (warnings != nullptr) warnings->push_back(w);
                     });
}

void expect_equal(const std::vector<StateItem>& a, const std::vector<StateItem>& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(test::values(a[i].value), test::values(b[i].value)) << a[i].name;
  }
}

void flip_bit(const fs::path& file, int64_t at) {
  std::fstream f(file, std::ios::in | std::ios::out | std::ios::binary);
  f.seekg(at);
  const auto byte = static_cast<char>(f.get() ^ 4);
  f.seekp(at);
  f.put(byte);
}

TEST(Checkpoint, ComesBackWhateverRanksWroteIt) {
  for (const int ranks : {1, 2, 3, 5, 7}) {
    const test::TempDir dir;
    const auto saved = state(1);
    save(dir.path(), 3, saved, ranks);
    auto loaded = state(50);
    const auto manifest = load(dir.path(), loaded);
    ASSERT_TRUE(manifest.has_value());
    EXPECT_EQ(manifest->step, 3);
    EXPECT_EQ(manifest->next_sample, 30);
    EXPECT_EQ(manifest->counters.at("guard"), (std::vector<double>{1, 0.1}));
    expect_equal(loaded, saved);
  }
}

TEST(Checkpoint, NothingThereIsNoError) {
  const test::TempDir dir;
  auto items = state(1);
  EXPECT_FALSE(load(dir.path(), items).has_value());
}

// Every single byte of every file that matters: a flipped bit is noticed, named and stepped back
// from. The HDF5 file's own metadata may be damaged without touching a tensor: then the tensors
// must be right.
TEST(Checkpoint, AFlippedBitIsNeverLoaded) {
  const auto good = state(1), newer = state(20);
  const test::TempDir dir;
  save(dir.path(), 1, good);
  save(dir.path(), 2, newer);
  const fs::path newest = CheckpointDirectory(dir.path()).at(2);
  for (const std::string name : {"manifest.json", "rank-0000.h5"}) {
    const auto size = static_cast<int64_t>(fs::file_size(newest / name));
    for (int64_t at = 0; at < size; at += 7) {
      flip_bit(newest / name, at);
      auto loaded = state(50);
      std::vector<std::string> warnings;
      const auto manifest = load(dir.path(), loaded, &warnings);
      ASSERT_TRUE(manifest.has_value());
      expect_equal(loaded, manifest->step == 2 ? newer : good);
      if (manifest->step == 1) {
        ASSERT_EQ(warnings.size(), 1U);
        EXPECT_NE(warnings[0].find(name), std::string::npos) << warnings[0];
      } else {
        EXPECT_NE(name, "manifest.json") << "a damaged manifest was believed at byte " << at;
      }
      flip_bit(newest / name, at);
    }
  }
}

TEST(Checkpoint, ATruncatedOrMissingFileIsSteppedBackFrom) {
  for (const std::string name : {"manifest.json", "rank-0000.h5", "rank-0001.h5"}) {
    for (const bool remove : {false, true}) {
      const test::TempDir dir;
      const auto good = state(1);
      save(dir.path(), 1, good, 2);
      save(dir.path(), 2, state(20), 2);
      const fs::path victim = CheckpointDirectory(dir.path()).at(2) / name;
      if (remove) {
        fs::remove(victim);
      } else {
        fs::resize_file(victim, fs::file_size(victim) / 2);
      }
      auto loaded = state(50);
      EXPECT_EQ(load(dir.path(), loaded)->step, 1) << name;
      expect_equal(loaded, good);
    }
  }
}

TEST(Checkpoint, WhenNoneIsGoodTheRunDoesNotStartOver) {
  const test::TempDir dir;
  save(dir.path(), 1, state(1));
  fs::resize_file(CheckpointDirectory(dir.path()).at(1) / "rank-0000.h5", 100);
  auto items = state(1);
  try {
    (void)load(dir.path(), items);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.fault(), Fault::kData);
  }
}

TEST(Checkpoint, AnotherModelIsRefusedAsSuch) {
  const test::TempDir dir;
  save(dir.path(), 1, state(1));
  const auto expect_refused = [&](std::vector<StateItem> items) {
    try {
      (void)load(dir.path(), items);
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.fault(), Fault::kConfig) << error.what();
    }
  };
  auto missing = state(1), extra = state(1), other = state(1);
  missing.pop_back();
  extra.push_back(StateItem::whole("new.weight", test::random({3}, 1, DType::kF32)));
  other[0] = StateItem::whole("wte.weight", test::random({18, 5}, 1, DType::kF32));
  expect_refused(missing);
  expect_refused(extra);
  expect_refused(other);
}

TEST(Checkpoint, KeepsTheLastAndTheMilestones) {
  const test::TempDir dir;
  for (int64_t step = 1; step <= 7; ++step) save(dir.path(), step, state(1), 1, {2, 3});
  EXPECT_EQ(CheckpointDirectory(dir.path()).steps(), (std::vector<int64_t>{7, 6, 3}));
}

TEST(Checkpoint, KeepsThoseWithALabel) {
  const test::TempDir dir;
  const CheckpointDirectory directory(dir.path());
  for (int64_t step = 1; step <= 7; ++step) {
    if (step == 2) directory.label(2, {"words-10", "words-20"});
    if (step == 4) directory.label(4, {"words-20"});  // moves
    save(dir.path(), step, state(1), 1, {2, 0});
  }
  EXPECT_EQ(directory.steps(), (std::vector<int64_t>{7, 6, 4, 2}));
  EXPECT_EQ(directory.labelled(), (std::set<int64_t>{2, 4}));
  EXPECT_EQ(read_manifest(fs::path(dir.path()) / "words-10").step, 2);
  EXPECT_EQ(read_manifest(fs::path(dir.path()) / "words-20").step, 4);

  directory.label(9, {"words-30"});  // of a save that came to nothing
  EXPECT_FALSE(directory.has_label("words-30"));
  directory.remove_remains();
  EXPECT_EQ(directory.labelled(), (std::set<int64_t>{2, 4}));
  EXPECT_TRUE(directory.has_label("words-10"));
}

TEST(Checkpoint, RemainsOfAKilledJobAreNotCheckpoints) {
  const test::TempDir dir;
  const CheckpointDirectory directory(dir.path());
  save(dir.path(), 1, state(1));
  fs::create_directories(directory.temporary(2));
  std::ofstream(directory.temporary(2) / "manifest.json") << "{}";
  EXPECT_EQ(directory.steps(), (std::vector<int64_t>{1}));
  directory.remove_remains();
  EXPECT_FALSE(fs::exists(directory.temporary(2)));
  EXPECT_TRUE(fs::exists(directory.at(1)));
}

TEST(Checkpoint, OneThatLostItsManifestIsDamagedAndNotOverlooked) {
  const test::TempDir dir;
  save(dir.path(), 1, state(1));
  fs::remove(CheckpointDirectory(dir.path()).at(1) / "manifest.json");
  CheckpointDirectory(dir.path()).remove_remains();
  auto items = state(1);
  EXPECT_THROW((void)load(dir.path(), items), Error);
  EXPECT_TRUE(fs::exists(CheckpointDirectory(dir.path()).at(1) / "rank-0000.h5"));
}

TEST(Checkpoint, AFullDiskLeavesTheOldOneWhole) {
  const test::TempDir dir;
  const auto good = state(1);
  save(dir.path(), 1, good);
  rlimit kept{};
  getrlimit(RLIMIT_FSIZE, &kept);
  std::signal(SIGXFSZ, SIG_IGN);  // then a write past the limit fails like one on a full disk
  const rlimit small{512, kept.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  CheckpointSaver saver(CheckpointDirectory(dir.path()), 0, 1, {3, 0}, nullptr);
  Manifest header;
  header.step = 2;
  saver.start(header, state(20));
  saver.join();
  setrlimit(RLIMIT_FSIZE, &kept);
  std::signal(SIGXFSZ, SIG_DFL);
  EXPECT_EQ(saver.phase(), CheckpointSaver::Phase::kFailed);
  EXPECT_FALSE(saver.error().empty());
  saver.abandon();
  auto loaded = state(50);
  EXPECT_EQ(load(dir.path(), loaded)->step, 1);
  expect_equal(loaded, good);
  save(dir.path(), 2, state(20));  // and once there is room again, saving works
}

TEST(Checkpoint, NonFiniteStateIsNeitherPublishedNorLoaded) {
  const test::TempDir dir;
  auto items = state(1);
  items[0].value.data<float>()[3] = std::numeric_limits<float>::quiet_NaN();
  CheckpointSaver saver(CheckpointDirectory(dir.path()), 0, 1, {3, 0}, nullptr);
  saver.start({}, items);
  saver.join();
  EXPECT_EQ(saver.phase(), CheckpointSaver::Phase::kFailed);
  EXPECT_NE(saver.error().find("wte.weight"), std::string::npos) << saver.error();
}

}  // namespace
}  // namespace anabranch
