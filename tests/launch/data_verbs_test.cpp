#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/launch/run_program.h"

namespace anabranch {

namespace {

using testing::HasSubstr;

class DataVerbsTest : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(dir_);
    std::string text;
    for (int i = 0; i < 400; ++i) {
      text += "the river leaves its bed " + std::to_string(i) + " times\nand comes home again\n\n";
    }
    write("text.txt", text);
  }

  void TearDown() override { std::filesystem::remove_all(dir_); }

  ProgramResult run(const std::string& arguments) { return run_program(dir_, arguments); }

  void write(const std::string& name, const std::string& text) const {
    std::ofstream(dir_ + "/" + name, std::ios::binary) << text;
  }

  [[nodiscard]] std::string content(const std::string& name) const {
    std::ifstream in(dir_ + "/" + name, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  void make_tokenizer() {
    const ProgramResult made =
        run("tokenizer train --vocab 300 --pattern gpt2 --special '<|endoftext|>' --out t.json "
            "text.txt");
    ASSERT_EQ(made.exit_code, 0) << made.err;
    EXPECT_THAT(made.out, HasSubstr("t.json: 300 entries from"));
  }

  const std::string dir_ = testing::TempDir() + "data_verbs_test_" + std::to_string(getpid());
};

TEST_F(DataVerbsTest, TokenizerEncodesAndDecodesEveryByte) {
  make_tokenizer();
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes += static_cast<char>(i);
  write("bytes.bin", bytes + "<|endoftext|>" + bytes);
  ASSERT_EQ(run("tokenizer encode t.json bytes.bin").exit_code, 0);
  std::filesystem::copy_file(dir_ + "/out.txt", dir_ + "/ids.txt");
  const std::string ids = content("ids.txt");
  EXPECT_THAT(ids, testing::Not(HasSubstr("299")));  // plain text gives no special token
  const ProgramResult decoded = run("tokenizer decode t.json " + ids.substr(0, ids.size() - 1));
  EXPECT_EQ(decoded.out, content("bytes.bin"));
  EXPECT_EQ(run("tokenizer encode t.json --text 'the river' --count").out,
            std::to_string(2) + "\n");
  EXPECT_EQ(run("tokenizer decode t.json 300").exit_code, 65);
}

TEST_F(DataVerbsTest, TokenizerGoesThroughGpt2Files) {
  make_tokenizer();
  const ProgramResult written = run("tokenizer export t.json --merges v.bpe --ids e.json");
  ASSERT_EQ(written.exit_code, 0) << written.err;
  EXPECT_EQ(written.out, "v.bpe and e.json: 300 entries of t.json\n");
  const ProgramResult back = run("tokenizer import --merges v.bpe --ids e.json --out t2.json");
  ASSERT_EQ(back.exit_code, 0) << back.err;
  EXPECT_EQ(run("tokenizer encode t.json text.txt").out,
            run("tokenizer encode t2.json text.txt").out);
  ASSERT_EQ(run("tokenizer import --json t.json --out t3.json").exit_code, 0);
  EXPECT_EQ(content("t.json"), content("t3.json"));
}

TEST_F(DataVerbsTest, ShardsAreBuiltShownAndChecked) {
  make_tokenizer();
  const std::string build =
      "shard build --tokenizer t.json --document paragraph --validation 0.1 text.txt --out ";
  const ProgramResult built = run(build + "d");
  ASSERT_EQ(built.exit_code, 0) << built.err;
  EXPECT_THAT(built.out, HasSubstr("d: 2 shards in"));
  const ProgramResult shown = run("shard inspect d --json");
  ASSERT_EQ(shown.exit_code, 0) << shown.err;
  EXPECT_THAT(shown.out, HasSubstr("\"vocab_size\": 300"));
  EXPECT_THAT(shown.out, HasSubstr("train-00000.h5"));
  EXPECT_THAT(run("shard inspect d/val-00000.h5").out, HasSubstr("documents: "));
  EXPECT_EQ(run("shard verify d").out, "d: good\n");
  EXPECT_NE(run(build + "d").exit_code, 0);  // is there already

  ASSERT_EQ(run(build + "one --workers 1").exit_code, 0);
  EXPECT_EQ(content("d/train-00000.h5"), content("one/train-00000.h5"));

  std::string broken = content("d/train-00000.h5");
  broken[broken.size() / 2] = static_cast<char>(broken[broken.size() / 2] ^ 1);
  write("d/train-00000.h5", broken);
  const ProgramResult bad = run("shard verify d");
  EXPECT_EQ(bad.exit_code, 65);
  EXPECT_THAT(bad.err, HasSubstr("train-00000.h5"));
}

TEST_F(DataVerbsTest, BlendsNameTheirSources) {
  make_tokenizer();
  write("two.txt", "another source\n\nof two documents\n");
  const ProgramResult built =
      run("shard build --tokenizer t.json --document paragraph --validation 0.3 --out d "
          "--source a=text.txt --source b=two.txt --weight a=1 --weight b=3 --json");
  ASSERT_EQ(built.exit_code, 0) << built.err;
  EXPECT_THAT(built.out, HasSubstr("\"name\": \"b\""));
  EXPECT_THAT(run("shard inspect d").out, HasSubstr("name: b"));
  const std::string base = "shard build --tokenizer t.json --out e ";
  EXPECT_EQ(run(base).exit_code, 64);
  EXPECT_EQ(run(base + "--source a").exit_code, 64);
  EXPECT_EQ(run(base + "--source a=text.txt --weight c=1").exit_code, 64);
  EXPECT_EQ(run(base + "--source a=text.txt --weight a=x").exit_code, 64);
  EXPECT_EQ(run(base + "none.txt").exit_code, 65);
}

TEST_F(DataVerbsTest, ConfigCheckLooksAtTheData) {
  make_tokenizer();
  ASSERT_EQ(run("shard build --tokenizer t.json --document paragraph --validation 0.1 text.txt "
                "--out d")
                .exit_code,
            0);
  write("run.yaml",
        "data: {path: d}\nmodel: {layers: 1, width: 16, heads: 2, context: 16}\n"
        "train: {steps: 3, batch_tokens: 64}\n");
  const ProgramResult good = run("config check run.yaml");
  ASSERT_EQ(good.exit_code, 0) << good.err;
  EXPECT_EQ(good.err, "");
  EXPECT_THAT(good.out, HasSubstr("model with a vocabulary of 300 (data): "));
  const auto refused = [&](const std::string& sets) {
    const ProgramResult result = run("config check run.yaml " + sets);
    EXPECT_NE(result.exit_code, 0);
    EXPECT_EQ(result.out, "");
    return std::to_string(result.exit_code) + " " + result.err;
  };
  EXPECT_THAT(refused("--set model.context=65536 --set train.batch_tokens=65536"),
              testing::AllOf(testing::StartsWith("65 "), HasSubstr("65536")));
  EXPECT_THAT(
      refused(
          "--ranks 4 --set model.type=kappa_moe --set model.moe_first=0 --set parallel.model=3"),
      testing::AllOf(testing::StartsWith("78 "), HasSubstr("parallel.model is 3")));
  EXPECT_THAT(refused("--set 'data.sources=[{name: none}]'"),
              testing::AllOf(testing::StartsWith("78 "), HasSubstr("data.sources names none")));

  write("d/tokenizer.json", content("d/tokenizer.json") + "\n");
  EXPECT_THAT(refused(""), testing::AllOf(testing::StartsWith("65 "), HasSubstr("SHA-256")));
  write("d/tokenizer.json", content("t.json"));
  std::filesystem::remove(dir_ + "/d/val-00000.h5");
  EXPECT_THAT(refused(""), testing::AllOf(testing::StartsWith("65 "), HasSubstr("val-00000.h5")));
}

}  // namespace

}  // namespace anabranch
