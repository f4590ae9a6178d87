// What every verb says about its options, whichever they are.
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <string>
#include <unistd.h>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "tests/launch/run_program.h"

namespace anabranch {

namespace {

using testing::HasSubstr;
using testing::StartsWith;

class OptionsTest : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(dir_); }

  void TearDown() override { std::filesystem::remove_all(dir_); }

  ProgramResult run(const std::string& arguments, const std::string& environment = "") {
    return run_program(dir_, arguments, environment);
  }

  // What a bad command line is answered.
  std::string refused(const std::string& arguments) {
    const ProgramResult result = run(arguments);
    EXPECT_EQ(result.exit_code, 64) << arguments;
    EXPECT_EQ(result.out, "") << arguments;
    EXPECT_THAT(result.err, StartsWith("anabranch: error: ")) << arguments;
    return result.err.substr(std::min<size_t>(result.err.size(), 18));
  }

  // The verbs that have no verbs below them, by their help.
  std::vector<std::string> verbs() {
    std::vector<std::string> left{""}, last;
    while (!left.empty()) {
      const std::string verb = left.back(), title = "Subcommands:\n";
      left.pop_back();
      const std::string help = run(verb + " --help").out;
      const size_t at = help.find(title);
      if (at == std::string::npos) last.push_back(verb);
      std::istringstream lines(at == std::string::npos ? "" : help.substr(at + title.size()));
      for (std::string line; std::getline(lines, line) && line.starts_with("  ");) {
        const std::string name = line.substr(2, line.find(' ', 2) - 2);
        if (!name.empty()) left.push_back(join(verb, " ", name));  // else a description goes on
      }
    }
    return last;
  }

  const std::string dir_ = testing::TempDir() + "options_test_" + std::to_string(getpid());
};

TEST_F(OptionsTest, EveryNumberOfEveryVerbIsChecked) {
  const std::vector<std::string> all = verbs();
  EXPECT_GT(all.size(), 20U);
  const std::regex number("\n  (--[a-z-]+) (U?INT|FLOAT)");
  int options = 0;
  for (const std::string& verb : all) {
    const std::string help = run(verb + " --help").out;
    for (std::sregex_iterator at(help.begin(), help.end(), number), end; at != end; ++at) {
      const std::string flag = (*at)[1];
      EXPECT_THAT(refused(join(verb, " ", flag, " -1")), StartsWith(flag + ": found ")) << verb;
      ++options;
    }
  }
  EXPECT_GT(options, 40);
}

TEST_F(OptionsTest, WhatIsNoNumberIsRefused) {
  for (const char* flag : {"--tokens", "--temperature"}) {
    for (const char* bad : {"many", "nan", "''", "1x", "-inf"}) {
      EXPECT_THAT(refused(join("generate r ", flag, " ", bad)), StartsWith(join(flag, ": found ")));
    }
  }
  EXPECT_THAT(refused("generate r --tokens 99999999999999999999999"),
              StartsWith("--tokens: found 9999"));
}

TEST_F(OptionsTest, MessagesSayWhatIsAccepted) {
  EXPECT_EQ(refused("generate r --tokens -1"),
            "--tokens: found -1; expected a whole number of 0 or more\n");
  EXPECT_EQ(refused("checkpoint export r --out o --step -5"),
            "--step: found -5; expected a whole number of 0 or more\n");
  EXPECT_EQ(refused("generate r --top-p 0"),
            "--top-p: found 0; expected a number above 0 and up to 1\n");
  EXPECT_EQ(refused("config check r --ranks 0"),
            "--ranks: found 0; expected a whole number from 1 to 1048576\n");
  EXPECT_THAT(refused("generate r --seed 'a b'"), StartsWith("--seed: found \"a b\"; expected"));
  EXPECT_THAT(refused("shard build --tokenizer t --out o --source a=x --weight a=inf"),
              HasSubstr("found inf; expected a number above 0"));
  EXPECT_THAT(refused("tokenizer train x --out o --pattern gpt3"),
              StartsWith("--pattern: found gpt3; expected gpt2 or gpt4; nearest is gpt2"));
  EXPECT_EQ(refused("shard build --document paragraf"),
            "--document: found paragraf; expected file, line or paragraph; nearest is paragraph\n");
  EXPECT_EQ(refused("train x --resume yes"), "--resume: found yes; expected auto, must or never\n");
  EXPECT_THAT(refused("generate r --tokens"),
              StartsWith("--tokens: found no value; expected one\n"));
  EXPECT_THAT(refused("config check r --set"), StartsWith("--set: found no value; expected one\n"));
  EXPECT_THAT(refused("generate r --seed 1 --seed 2"),
              StartsWith("--seed: found more than one value; expected one\n"));
  EXPECT_THAT(refused("generate r --json=maybe"),
              StartsWith("--json: found \"maybe\"; expected no value\n"));
  EXPECT_EQ(refused("eval x --suite glue"), "--suite: found glue; expected perplexity or core\n");
}

TEST_F(OptionsTest, HelpShowsDefaults) {
  for (const std::string& verb : verbs()) {
    const std::string help = run(verb + " --help").out;
    EXPECT_THAT(help, testing::Not(HasSubstr("=[]"))) << verb;
    EXPECT_THAT(help, testing::Not(HasSubstr("=\n"))) << verb;
  }
  EXPECT_THAT(run("generate --help").out, HasSubstr("--tokens INT=64"));
  EXPECT_THAT(run("generate --help").out, HasSubstr("--top-p FLOAT=1"));
  EXPECT_THAT(run("train --help").out, HasSubstr("--resume {auto,must,never}=auto"));
  EXPECT_THAT(run("tokenizer train --help").out, HasSubstr("--pattern {gpt2,gpt4}=gpt4"));
  EXPECT_THAT(run("tokenizer train --help").out, HasSubstr("=32768"));
  EXPECT_THAT(run("shard build --help").out, HasSubstr("--field TEXT=text"));
  EXPECT_THAT(run("doctor --help").out, HasSubstr("--dir TEXT=."));
}

TEST_F(OptionsTest, OneRankDoesTheWorkOfOneProcess) {
  const std::string two =
      "env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun --oversubscribe "
      "--bind-to none -n 2";
  const auto once = [](const std::string& text, const std::string& part) {
    const size_t at = text.find(part);
    return at != std::string::npos && text.find(part, at + 1) == std::string::npos;
  };
  const ProgramResult keys = run("config keys", two);
  EXPECT_EQ(keys.exit_code, 0) << keys.err;
  EXPECT_TRUE(once(keys.out, "version of these keys")) << keys.out;
  EXPECT_TRUE(once(keys.err, "rank 0 of 2")) << keys.err;
  EXPECT_TRUE(once(run("--help", two).out, "Usage:"));
  const std::vector<std::pair<std::string, int>> failing = {
      {"tokenizer encode none.json --text x", 65},
      {"shard inspect none.h5", 65},
      {"checkpoint inspect none", 65},
      {"watch none", 65},
      {"generate none", 65},
      {"config check none.yaml", 78},
      {"sweep expand none.yaml", 78},
      {"config chekc", 64},
      {"generate none --tokens -1", 64}};
  for (const auto& [arguments, code] : failing) {
    const ProgramResult result = run(arguments, two);
    EXPECT_EQ(result.exit_code, code) << arguments << result.err;
    EXPECT_TRUE(once(result.err, "anabranch: error: ")) << arguments << result.err;
  }
}

TEST_F(OptionsTest, MissingInputsAre65EverywhereAndFoldersToo) {
  std::ofstream(dir_ + "/text.txt") << "some text\n";
  for (const char* arguments : {"tokenizer encode none.json --text x",
                                "tokenizer decode none.json 1",
                                "tokenizer import --json none.json --out t.json",
                                "tokenizer import --merges none.bpe --ids none.json --out t.json",
                                "tokenizer export none.json --merges m --ids i",
                                "tokenizer train none.txt --out t.json",
                                "shard build --tokenizer none.json --out d text.txt",
                                "shard inspect none",
                                "shard verify none.h5",
                                "checkpoint inspect none",
                                "checkpoint verify none",
                                "checkpoint export none --out o",
                                "checkpoint export none --step 0 --out o",
                                "checkpoint import none --out o",
                                "eval none",
                                "generate none",
                                "generate . --prompts none.txt",
                                "watch none --once",
                                "bench data --text none.txt --tokenizer none.json",
                                "bench data --text none.txt --train-vocab 300",
                                "bench data --data none",
                                "tokenizer encode . --text x"}) {
    const ProgramResult result = run(arguments);
    EXPECT_EQ(result.exit_code, 65) << arguments << "\n" << result.err;
  }
}

}  // namespace

}  // namespace anabranch
