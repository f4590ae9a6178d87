// The files of configs/data, as the verbs read them, and what is wrong with others.
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "tests/launch/run_program.h"
#include "tests/support/temp_dir.h"

namespace anabranch {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

// Words of random letters: more pairs than any of the vocabularies takes.
std::vector<std::string> lines_of_text() {
  std::mt19937 random(1);
  std::vector<std::string> lines;
  for (int line = 0; line < 1500; ++line) {
    std::string text;
    for (int word = 0; word < 10; ++word) {
      text += word == 0 ? "" : " ";
      for (int i = 0; i < 10; ++i) text += static_cast<char>('a' + random() % 26);
    }
    lines.push_back(text);
  }
  return lines;
}

class SettingsTest : public testing::Test {
 protected:
  ProgramResult run(const std::string& arguments) { return run_program(dir_.path(), arguments); }

  void write(const std::string& name, const std::string& text) const {
    std::ofstream(dir_ / name, std::ios::binary) << text;
  }

  void write_texts() const {
    std::string plain, rows;
    for (const std::string& line : lines_of_text()) {
      plain += line + "\n";
      rows += json{{"text", line}}.dump() + "\n";
    }
    write("a.train.txt", plain);
    write("a.jsonl", rows);
  }

  // Both verbs with a file of configs/data; only the text is another. Returns what was built.
  json build(const std::string& name, const std::string& inputs) {
    const std::string settings =
        "--settings " + std::string(AB_SOURCE_DIR) + "/configs/data/" + name + ".yaml ";
    const ProgramResult trained = run("tokenizer train " + settings + "--out t.json " + inputs);
    EXPECT_EQ(trained.exit_code, 0) << trained.err;
    const ProgramResult built =
        run("shard build " + settings + "--tokenizer t.json --out data --json " + inputs);
    EXPECT_EQ(built.exit_code, 0) << built.err;
    const ProgramResult shown = run("shard inspect data --json");
    EXPECT_EQ(shown.exit_code, 0) << shown.err;
    json all = json::parse(shown.out);
    all["report"] = json::parse(built.out).at("sources").at(0);
    return all;
  }

  std::string token(int64_t id) { return run("tokenizer decode t.json " + std::to_string(id)).out; }

  test::TempDir dir_;
};

TEST_F(SettingsTest, Fineweb) {
  write_texts();
  const json built = build("fineweb", "--format jsonl a.jsonl");
  EXPECT_EQ(built.at("tokenizer").at("vocab_size"), 50257);
  EXPECT_EQ(built.at("tokenizer").at("bos_id"), 50256);
  EXPECT_EQ(token(50256), "<|endoftext|>");
  EXPECT_NE(token(50255), "");
  EXPECT_LT(built.at("report").at("val_documents"), 60);  // of 1500, spread
  EXPECT_GT(built.at("report").at("val_documents"), 2);
  EXPECT_EQ(run("tokenizer encode t.json --text 12345 --count").out, "5\n");
}

TEST_F(SettingsTest, FinewebEdu) {
  write_texts();
  const json built = build("fineweb_edu", "--format jsonl a.jsonl");
  EXPECT_EQ(built.at("tokenizer").at("vocab_size"), 32768);
  EXPECT_EQ(built.at("tokenizer").at("bos_id"), 32759);
  std::string specials;
  for (int64_t id = 32759; id < 32768; ++id) specials += token(id);
  EXPECT_EQ(specials,
            "<|bos|><|user_start|><|user_end|><|assistant_start|><|assistant_end|>"
            "<|python_start|><|python_end|><|output_start|><|output_end|>");
}

TEST_F(SettingsTest, Babylm) {
  write_texts();
  std::filesystem::copy_file(dir_ / "a.train.txt", dir_ / "b.train.txt");
  const json built = build("babylm", "'*.train.txt'");
  EXPECT_EQ(built.at("tokenizer").at("vocab_size"), 16384);
  EXPECT_EQ(token(16382) + token(16383), "<|endoftext|>[MASK]");
  const json& report = built.at("report");
  EXPECT_EQ(report.at("val_documents"), 150);  // 5% of 1500 lines of each file
  EXPECT_EQ(report.at("train_words"), 28500);
  EXPECT_EQ(built.at("sources").at(0).at("train_words"), 28500);

  // What the paper's run makes of it: epochs as steps, marks at words seen.
  const std::string config = std::string(AB_SOURCE_DIR) + "/configs/moep-babylm.yaml ";
  const ProgramResult checked =
      run("config check " + config + "--set data.path=data --set optim.warmup_steps=0");
  ASSERT_EQ(checked.exit_code, 0) << checked.err;
  const int64_t tokens = built.at("train_tokens"), samples = (tokens - 1) / 512;
  const std::string steps = std::to_string((8 * samples + 15) / 16);
  EXPECT_THAT(checked.out, HasSubstr(": " + steps + " steps of 16 sequences"));
  EXPECT_THAT(checked.out, HasSubstr("  steps: " + steps + " "));
  EXPECT_THAT(checked.out, HasSubstr("  epochs: 8 "));
}

TEST_F(SettingsTest, ARunOfEpochsTellsItsStepsAndKeepsItsMarks) {
  std::string lines;
  for (const std::string& line : lines_of_text()) lines += line.substr(0, 30) + "\n";
  write("text.txt", lines);
  write("s.yaml", "text: {files: [text.txt], document: line}\ntokenizer: {vocab: 300}\n");
  ASSERT_EQ(run("tokenizer train --settings s.yaml --out t.json").exit_code, 0);
  ASSERT_EQ(run("shard build --settings s.yaml --tokenizer t.json --out d").exit_code, 0);
  write("run.yaml",
        "data: {path: d}\nmodel: {layers: 1, width: 16, heads: 2, context: 64}\n"
        "train: {epochs: 2, batch_tokens: 8192, micro_batch: 32}\n"
        "checkpoint: {words: [2000, 5000]}\nmetrics: {listen: off}\n");
  const ProgramResult trained = run("train run.yaml");
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  const json last = json::parse(run("checkpoint inspect runs/run --json").out).at(0);
  const std::string steps = std::to_string(last.at("step").get<int64_t>());
  EXPECT_THAT(trained.err, HasSubstr(": 1 rank, " + steps + " steps of 128 sequences"));
  EXPECT_THAT(run("watch runs/run --once").out, HasSubstr(steps + "/" + steps));
  EXPECT_EQ(run("checkpoint verify runs/run/checkpoints/words-2000").exit_code, 0);
  EXPECT_EQ(run("checkpoint verify runs/run/checkpoints/words-5000").exit_code, 0);
  EXPECT_GE(last.at("counters").at("words").at(0), 5000);

  const ProgramResult both = run("train run.yaml --set train.steps=3 --set run.dir=runs/both");
  EXPECT_EQ(both.exit_code, 78);
  EXPECT_THAT(both.err, HasSubstr("train.steps 3 and train.epochs 2 are both set"));
  EXPECT_EQ(run("train runs/run/config.yaml --set run.dir=runs/again").exit_code, 0);
}

TEST_F(SettingsTest, TheCommandLineWins) {
  write("one.txt", "the river leaves its bed\n");
  write("two.txt", "and comes home again\nat night\n");
  write("s.yaml",
        "text: {files: [none.txt], document: file}\n"
        "tokenizer: {vocab: 400, special: [\"<|bos|>\", \"[x]\"]}\n"
        "shard: {source: [\"a=none.txt\"], weight: [\"a=1\"], validation: 0.5}\n");
  ASSERT_EQ(run("tokenizer train --settings s.yaml --vocab 260 --special '<|bos|>' --out t.json "
                "one.txt two.txt")
                .exit_code,
            0);
  EXPECT_EQ(token(259), "<|bos|>");
  const ProgramResult built =
      run("shard build --settings s.yaml --document line --tokenizer t.json "
          "--validation 0 --out d two.txt");
  ASSERT_EQ(built.exit_code, 0) << built.err;
  EXPECT_THAT(built.out, HasSubstr("text: 2 + 0 documents, 6 + 0 words"));
  EXPECT_EQ(run("tokenizer train --settings s.yaml --out t.json").exit_code, 65);  // none.txt
  const ProgramResult blend =
      run("shard build --settings s.yaml --tokenizer t.json --out e --source b=one.txt "
          "--source b=two.txt --document line --validation 0.01");
  EXPECT_EQ(blend.exit_code, 0) << blend.err;
  EXPECT_THAT(blend.out, HasSubstr("b: 2 + 1 documents"));
}

TEST_F(SettingsTest, MistakesAreNamedByTheirLines) {
  write("t.txt", "the river\n");
  const auto refused = [&](const std::string& settings, const std::string& verb) {
    write("s.yaml", settings);
    const ProgramResult result = run(verb + " --settings s.yaml --out o t.txt");
    EXPECT_EQ(result.exit_code, 78) << settings;
    return result.err;
  };
  const std::string train = "tokenizer train", build = "shard build --tokenizer t.json";
  EXPECT_THAT(refused("schema: 1\ntokenizer:\n  vocab: 12\n  patern: gpt2\n", train),
              AllOf(HasSubstr("s.yaml:3: tokenizer.vocab: found 12; expected a whole number from"),
                    HasSubstr("s.yaml:4: unknown key tokenizer.patern; nearest is tokenizer.pat")));
  EXPECT_THAT(refused("tokenizer:\n  vocab: \"300\"\n", train),
              HasSubstr("s.yaml:2: tokenizer.vocab: must be a number"));
  EXPECT_THAT(refused("tokenizer:\n  special: a\n", train),
              HasSubstr("s.yaml:2: tokenizer.special: must be a list of words"));
  EXPECT_THAT(refused("tokenizer:\n  special: a\n", build), HasSubstr("must be a list of words"));
  EXPECT_THAT(refused("shard:\n  begin: eos\n", build),
              HasSubstr("s.yaml:2: shard.begin: found eos; expected bos or none"));
  EXPECT_THAT(refused("shard:\n  skip_empty: 1\n", build), HasSubstr("must be true or false"));
  EXPECT_THAT(refused("shards:\n  begin: bos\n", build),
              HasSubstr("s.yaml:1: unknown key shards; nearest is shard"));
  EXPECT_THAT(refused("schema: 2\n", train), HasSubstr("s.yaml:1: schema: must be 1"));
  EXPECT_THAT(refused("text: 3\n", train), HasSubstr("s.yaml:1: text: must be a section"));
  EXPECT_THAT(refused("text:\n  field: a\n  field: b\n", train), HasSubstr("s.yaml:3"));
  EXPECT_THAT(refused("[1]\n", train), HasSubstr("s.yaml: expected sections of keys"));
  EXPECT_EQ(run("tokenizer train --settings none.yaml --out o t.txt").exit_code, 78);
}

}  // namespace
}  // namespace anabranch
