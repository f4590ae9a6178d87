// What a user can get wrong, and what can break on disk: each ends with its exit code and a message
// that names it, and what was there stays.
#include <fstream>

#include <gmock/gmock.h>

#include "core/base/error.h"
#include "data/shard/dataset.h"
#include "data/shard/shard.h"
#include "tests/data/folder.h"
#include "tests/launch/train_job.h"
#include "tests/support/checkpoints.h"

namespace anabranch {
namespace {
namespace fs = std::filesystem;

using testing::HasSubstr;
using testing::Not;

class TrainInput : public TrainJobs {
 protected:
  // Runs to the end, which must be with this code and these words; alone and as two ranks, where
  // what both find is said once.
  void expect_refused(int code, const std::vector<std::string>& arguments,
                      const std::vector<std::string>& words, const std::string& run = "run") {
    for (const int ranks : {0, 2}) {
      const Ended end = train_to_end(run, ranks, arguments);
      EXPECT_EQ(end.exit_code, code) << end.output;
      for (const std::string& word : words) EXPECT_THAT(end.output, HasSubstr(word));
      const std::string error = "anabranch: error: ";
      const size_t first = end.output.find(error);
      ASSERT_NE(first, std::string::npos) << end.output;
      EXPECT_EQ(end.output.find(error, first + 1), std::string::npos) << end.output;
    }
  }

  // A copy of the data set, to be broken.
  fs::path data_copy(const std::string& name) {
    fs::copy(data(), path(name), fs::copy_options::recursive);
    return path(name);
  }

  static std::string at(const fs::path& folder) { return "--set=data.path=" + folder.string(); }
};

TEST_F(TrainInput, ConfigurationsThatCannotBe) {
  expect_refused(78, {"--set=optim.lrr=1"}, {"unknown key optim.lrr", "nearest is optim.lr"});
  expect_refused(78, {"--set=train.batch_tokens=200"},
                 {"batch_tokens 200", "nearest legal values: 192 and"});
  const std::string bad = path("bad.yaml").string();
  std::ofstream(bad) << "model:\n  widht: 3\n";
  const Ended unknown = program({"train", bad});
  EXPECT_EQ(unknown.exit_code, 78);
  EXPECT_THAT(unknown.output, HasSubstr("bad.yaml:2: unknown key model.widht"));
  std::ofstream(bad) << "model: [1, 2\n";
  EXPECT_EQ(program({"train", bad}).exit_code, 78);
  EXPECT_EQ(program({"train", path("none.yaml").string()}).exit_code, 78);
  EXPECT_FALSE(fs::exists(path("run")));
}

TEST_F(TrainInput, AModelLargerThanTheMemory) {
  expect_refused(78, {"--set=model.layers=4096", "--set=model.width=1048576"},
                 {"does not fit this machine", "moments", "a smaller micro-batch does not help"});
}

TEST_F(TrainInput, ResumeMustNeedsACheckpoint) {
  expect_refused(64, {"--resume=must"}, {"holds no checkpoint to resume"});
}

TEST_F(TrainInput, ARunDirectoryThatCannotBeWritten) {
  std::ofstream(path("run")) << "a file";
  expect_refused(74, {}, {"cannot write to", path("run").string()});
  EXPECT_EQ(text_of("run"), "a file");
}

TEST_F(TrainInput, DataThatIsMissingOrBroken) {
  expect_refused(65, {at(path("nowhere"))}, {path("nowhere").string()});

  const fs::path cut = data_copy("cut");
  fs::resize_file(cut / "train-00000.h5", fs::file_size(cut / "train-00000.h5") - 100);
  expect_refused(65, {at(cut)}, {"train-00000.h5"});

  const fs::path gone = data_copy("gone");
  fs::remove(gone / "val-00000.h5");
  expect_refused(65, {at(gone)}, {"val-00000.h5"});

  const fs::path flipped = data_copy("flipped");
  std::string bytes = test::slurp(flipped / "train-00000.h5");
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  test::spill(flipped / "train-00000.h5", bytes);
  expect_refused(65, {at(flipped)}, {"train-00000.h5"});

  const fs::path foreign = data_copy("foreign");
  test::spill(foreign / "tokenizer.json", test::slurp(foreign / "tokenizer.json") + "\n");
  expect_refused(65, {at(foreign)}, {"tokenizer"});

  expect_refused(65,
                 {"--set=model.context=30000", "--set=train.batch_tokens=60000",
                  "--set=train.micro_batch=1", "--set=model.width=2", "--set=model.heads=1"},
                 {"30000"}, "long");
}

// write_shard makes no such file, so it is told of a larger vocabulary, which the file then loses.
void write_bad_shard(const std::string& path, TokenizerFacts facts,
                     const std::vector<uint32_t>& tokens, const std::vector<uint64_t>& offsets) {
  const int64_t vocabulary = facts.vocab_size;
  facts.vocab_size = 54321;
  write_shard(path, facts, tokens, offsets);
  std::string bytes = test::slurp(path);
  const auto text = [](const int64_t& number) {
    return std::string(reinterpret_cast<const char*>(&number), sizeof number);
  };
  const size_t at = bytes.find(text(facts.vocab_size));
  ASSERT_NE(at, std::string::npos);
  test::spill(path, bytes.replace(at, sizeof vocabulary, text(vocabulary)));
}

TEST_F(TrainInput, ATokenOutsideTheVocabulary) {
  const fs::path folder = data_copy("big");
  const std::string shard = folder / "train-00000.h5";
  const ShardReader whole(shard);
  std::vector<int32_t> read(static_cast<size_t>(whole.tokens()));
  whole.read(0, whole.tokens(), read.data());
  std::vector<uint32_t> tokens(read.begin(), read.end());
  tokens[1234] = 777;
  write_bad_shard(shard, whole.tokenizer(), tokens, whole.document_offsets());
  SourceRecord source;
  source.name = "text";
  source.folder = ".";
  source.train = {"train-00000.h5"};
  source.val = {"val-00000.h5"};
  write_dataset_json(folder, whole.tokenizer(), {source});
  expect_refused(65, {at(folder)}, {"train-00000.h5", "777", "300"});
  expect_refused(65, {at(folder), "--set=data.verify=false"}, {"train-00000.h5", "1234"}, "late");
}

TEST_F(TrainInput, DamagedCheckpointsAreSteppedBackFrom) {
  const std::vector<std::string> saving = {"--set=checkpoint.every_steps=10"};
  ASSERT_EQ(train_to_end("run", 2, saving).exit_code, 0);
  const auto want = test::checkpoint_state(path("run"), kSteps);
  const fs::path newest = test::checkpoints_of(path("run")).at(kSteps);
  std::string bytes = test::slurp(newest / "rank-0000.h5");
  bytes[bytes.size() - 9] = static_cast<char>(bytes[bytes.size() - 9] ^ 2);
  test::spill(newest / "rank-0000.h5", bytes);

  EXPECT_EQ(program({"checkpoint", "verify", newest.string()}).exit_code, 65);
  const Ended again = train_to_end("run", 2, saving);
  EXPECT_EQ(again.exit_code, 0);
  EXPECT_THAT(again.output, HasSubstr("step-00000030 is passed over"));
  EXPECT_THAT(again.output, HasSubstr("rank-0000.h5"));
  EXPECT_THAT(again.output, HasSubstr("resumed at step 20"));
  EXPECT_EQ(test::checkpoint_state(path("run"), kSteps), want);

  for (const int64_t step : test::saved_steps(path("run"))) {
    test::spill(test::checkpoints_of(path("run")).at(step) / "manifest.json", "{}");
  }
  expect_refused(65, saving, {"none of 3 checkpoints can be read", "manifest.json"});
}

}  // namespace
}  // namespace anabranch
