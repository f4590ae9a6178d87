#include "runtime/config/config.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "tests/support/refusal.h"
#include "tests/support/temp_dir.h"

namespace anabranch {

namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::string refusal(const std::string& text, const std::vector<std::string>& sets = {}) {
  return test::refusal([&] { parse_config(text, "c.yaml", sets); });
}

TEST(Config, ARunIsNamedAfterItsDirectory) {
  const auto name = [](const std::string& dir) {
    return parse_config("", "dir/small.yaml", {"run.dir=" + dir}).run.name;
  };
  EXPECT_EQ(name("runs/large"), "large");
  EXPECT_EQ(name("/scratch/a.b/"), "a.b");
  EXPECT_EQ(name("'my runs/first try'"), "first-try");
  EXPECT_EQ(name(".hidden"), "-hidden");
  EXPECT_EQ(name("."), "small");
  EXPECT_EQ(name(".."), "small");
  EXPECT_EQ(parse_config("run: {name: mine}", "c.yaml", {"run.dir=runs/x"}).run.name, "mine");
}

TEST(Config, EmptyFileIsAllDefaults) {
  const Config config = parse_config("", "dir/small.yaml");
  EXPECT_EQ(config.run.name, "small");
  EXPECT_EQ(config.run.dir, "runs/small");
  EXPECT_EQ(config.train.precision, Precision::kFp32);
  EXPECT_EQ(config.optim.beta2, 0.95);
  EXPECT_TRUE(config.parallel.model.is_auto());
  EXPECT_EQ(parse_config("# only a comment\n", "small.yaml"), config);
}

TEST(Config, ReadsEveryKind) {
  const Config config = parse_config(
      "device: cpu\n"
      "run: {name: 007, seed: 5}\n"
      "data:\n"
      "  sources: [{name: a, weight: 0.5}, {name: \"b c\"}]\n"
      "  packing: best_fit\n"
      "train: {tokens: 1e9, precision: bf16}\n"
      "parallel: {model: 1}\n"
      "checkpoint: {async: false}\n",
      "c.yaml");
  EXPECT_EQ(config.device, DeviceChoice::kCpu);
  EXPECT_EQ(config.run.name, "007");
  EXPECT_EQ(config.run.seed, 5);
  ASSERT_EQ(config.data.sources.size(), 2U);
  EXPECT_EQ(config.data.sources[0].weight, 0.5);
  EXPECT_EQ(config.data.sources[1].name, "b c");
  EXPECT_EQ(config.data.sources[1].weight, 1);
  EXPECT_EQ(config.data.packing, Packing::kBestFit);
  EXPECT_EQ(config.train.tokens, 1000000000);
  EXPECT_EQ(config.train.precision, Precision::kBf16);
  EXPECT_EQ(config.parallel.model.value, 1);
  EXPECT_FALSE(config.checkpoint.async);
}

TEST(Config, UnknownKeysNameTheNearest) {
  EXPECT_EQ(refusal("optim:\n  lr: 1\n  warmup: 3\n"),
            "c.yaml:3: unknown key optim.warmup; nearest is optim.warmup_steps");
  EXPECT_EQ(refusal("modle: {}\n"), "c.yaml:1: unknown key modle; nearest is model");
  EXPECT_EQ(refusal("train: {lr: 1}\n"), "c.yaml:1: unknown key train.lr; nearest is optim.lr");
  EXPECT_THAT(refusal("eval: {zebra: 1}\n"),
              AllOf(HasSubstr("c.yaml:1: unknown key eval.zebra"),
                    HasSubstr("known here: every_steps, max_tokens")));
  EXPECT_EQ(refusal("data: {sources: [{name: a, wieght: 1}]}\n"),
            "c.yaml:1: unknown key data.sources[0].wieght; nearest is data.sources[0].weight");
  EXPECT_THAT(refusal("<<: {a: 1}\n"), HasSubstr("unknown key <<"));
}

TEST(Config, WrongTypesAndRangesNameTheLine) {
  EXPECT_EQ(refusal("\noptim:\n  lr: fast\n"),
            "c.yaml:3: optim.lr is \"fast\", must be a number from 0 to 10");
  EXPECT_THAT(refusal("optim: {lr: \"0.1\"}\n"), HasSubstr("(in quotes: text)"));
  EXPECT_THAT(refusal("optim: {lr: 11}\n"), HasSubstr("\"11\", must be a number from 0 to 10"));
  EXPECT_THAT(refusal("optim: {lr: .nan}\n"), HasSubstr("must be a number"));
  EXPECT_THAT(refusal("optim: {lr: }\n"), HasSubstr("optim.lr is empty"));
  EXPECT_THAT(refusal("train: {steps: 1.5}\n"), HasSubstr("must be a whole number"));
  EXPECT_THAT(refusal("train: {steps: [1]}\n"), HasSubstr("is a list"));
  EXPECT_THAT(refusal("train: {micro_batch: 0}\n"), HasSubstr("from 1 to 65536"));
  EXPECT_THAT(refusal("checkpoint: {async: yes}\n"), HasSubstr("must be true or false"));
  EXPECT_THAT(refusal("run: {dir: \"a\\0b\"}\n"), HasSubstr("run.dir is"));
  EXPECT_THAT(refusal("run: {dir: \"a\\0b\"}\n"), HasSubstr("must be a word without NUL"));
  EXPECT_THAT(refusal("optim: 3\n"), HasSubstr("optim is \"3\", must be a section"));
  EXPECT_THAT(refusal("run: {name: {a: b}}\n"), HasSubstr("run.name is a section"));
  EXPECT_THAT(refusal("data: {sources: a}\n"), HasSubstr("must be a list"));
  EXPECT_THAT(refusal("data: {sources: [a]}\n"), HasSubstr("data.sources[0] is \"a\""));
  EXPECT_THAT(refusal("parallel: {model: some}\n"), HasSubstr("must be auto or a whole number"));
  EXPECT_THAT(refusal("schema: 2\n"), HasSubstr("schema is \"2\""));
  EXPECT_THAT(refusal("- a\n- b\n"), HasSubstr("the file is a list"));
  EXPECT_THAT(refusal("optim: {lr: 1, lr: 2}\n"), HasSubstr("given twice"));
  EXPECT_LT(refusal("optim: {lr: " + std::string(100000, 'x') + "}\n").size(), 300U);
}

TEST(Config, WordsListTheValidOnes) {
  EXPECT_EQ(refusal("train: {precision: bf61}\n"),
            "c.yaml:1: train.precision is \"bf61\", must be one of fp32, bf16, fp64; "
            "nearest is bf16");
  EXPECT_THAT(refusal("model: {preset: gpt2-86m}\n"), HasSubstr("nearest is gpt2-85m"));
}

TEST(Config, ReportsAllProblemsAtOnce) {
  const std::string all = refusal("optim:\n  lr: x\n  clop: 1\ntrain: {steps: -1}\n");
  EXPECT_THAT(all, HasSubstr("c.yaml:2: optim.lr"));
  EXPECT_THAT(all, HasSubstr("c.yaml:3: unknown key optim.clop"));
  EXPECT_THAT(all, HasSubstr("c.yaml:4: train.steps"));
}

TEST(Config, SetWinsAndIsCheckedTheSame) {
  const Config config =
      parse_config("optim: {lr: 1}\n", "c.yaml", {"optim.lr=0.5", "optim.lr=0.25", "device=cpu"});
  EXPECT_EQ(config.optim.lr, 0.25);
  EXPECT_EQ(config.device, DeviceChoice::kCpu);
  EXPECT_EQ(refusal("", {"optim.lrr=1"}),
            "--set optim.lrr=1: unknown key optim.lrr; nearest is optim.lr");
  EXPECT_THAT(refusal("", {"optim.lr=x"}), HasSubstr("--set optim.lr=x: optim.lr is \"x\""));
  EXPECT_THAT(refusal("", {"optim.lr.x=1"}), HasSubstr("optim.lr is a section"));
  EXPECT_THAT(refusal("", {"optim=1"}), HasSubstr("must be a section"));
  EXPECT_THAT(refusal("", {"data.path="}), HasSubstr("data.path is empty"));
  EXPECT_EQ(parse_config("", "c.yaml", {"data.sources=[{name: x}]"}).data.sources[0].name, "x");
}

TEST(Config, ChangesMakeAnotherOfAnyFamily) {
  const std::string text = "model: {type: cmollm, streams: 8, width: 32, dropout: 0.1}\n";
  const Config changed = parse_config(text, "c.yaml", {"model.layers=3"}, {"model.type=gpt2"});
  EXPECT_EQ(changed.model.type, ModelType::kGpt2);
  EXPECT_EQ(changed.model.layers, 3);
  EXPECT_EQ(changed.model.gpt2.dropout, 0.1);  // both have it
  EXPECT_EQ(changed.model.ffn_width, 128);
  EXPECT_EQ(changed.model.cmollm, CmollmKeys{});
  const Config wider = parse_config(text, "c.yaml", {}, {"model.width=64", "optim.lr=2"});
  EXPECT_EQ(wider.model.cmollm.streams, 8);
  EXPECT_EQ(wider.model.ffn_width, 256);
  EXPECT_EQ(wider.optim.lr, 2);
  // A preset says the family too.
  EXPECT_EQ(parse_config("model: {preset: cmollm-2core, streams: 8}\n", "c.yaml", {},
                         {"model.preset=altup-2core"})
                .model.type,
            ModelType::kAltup);
  // What a change gives itself is checked, and what nobody has.
  EXPECT_THROW(parse_config(text, "c.yaml", {}, {"model.type=gpt2", "model.streams=2"}), Error);
  EXPECT_THROW(
      parse_config("model: {type: cmollm, strems: 8}\n", "c.yaml", {}, {"model.type=gpt2"}), Error);
}

TEST(Config, PresetFirstThenKeys) {
  const Config config = parse_config("model: {layers: 3, preset: gpt2-350m}\n", "c.yaml");
  EXPECT_EQ(config.model.layers, 3);
  EXPECT_EQ(config.model.width, 1024);
  EXPECT_EQ(config.model.heads, 16);
  EXPECT_EQ(config.model.ffn_width, 4096);
  EXPECT_EQ(parse_config("", "c.yaml", {"model.preset=gpt2-85m"}).model.width, 768);
}

TEST(Config, EveryPresetApplies) {
  for (const std::string& name : model_presets()) {
    ModelConfig model;
    EXPECT_TRUE(apply_preset(model, name)) << name;
    EXPECT_EQ(model.width % std::max<int64_t>(model.heads, 1), 0) << name;
  }
  ModelConfig model;
  EXPECT_FALSE(apply_preset(model, "gpt9"));
}

TEST(Config, CompatStandsForItsKeysAndGivenOnesWin) {
  const std::vector<std::string> sets{"model.preset=moep-msit", "model.compat=reference"};
  const Config config = parse_config("", "c.yaml", sets);
  const MoepKeys& keys = config.model.moep;
  EXPECT_EQ(keys.order, SlotOrder::kAffinity);
  EXPECT_EQ(keys.segments, SegmentScope::kPool);
  EXPECT_EQ(keys.rope_position, SlotPosition::kCompact);
  EXPECT_EQ(keys.window, SlotPosition::kCompact);
  EXPECT_EQ(config.model.ffn_width, 688);  // of the released code
  const Config mixed = parse_config("model: {segments: sequence}", "c.yaml", sets);
  EXPECT_EQ(mixed.model.moep.segments, SegmentScope::kSequence);
  EXPECT_EQ(mixed.model.moep.order, SlotOrder::kAffinity);
  EXPECT_EQ(parse_config(dump_config(mixed), "c.yaml").model, mixed.model);
  EXPECT_THAT(dump_config(mixed), HasSubstr("# default pool\n"));
  EXPECT_THAT(dump_config(mixed), HasSubstr("order: affinity\n"));
  const auto refused = [](const std::vector<std::string>& bad) {
    return refusal("model:\n  compat: reference", bad);
  };
  EXPECT_THAT(refused({"model.preset=gpt2-85m"}),
              HasSubstr("c.yaml:2: model.compat is a key of moep_msit models"));
  EXPECT_THAT(refused({"model.preset=moep-msit", "model.compat=ref"}), HasSubstr("reference"));
}

Config changed_everywhere() {
  Config config;
  config.run = {"a.b", "/x y/#1: \"q\"\\\t\x01\x7f \xc3\xa9", 3};
  config.data.sources = {{"null", 0.1}, {"", 1.0 / 3.0}, {"- x", 2}, {"a, {b}", 1e-6}};
  config.data.verify = false;
  config.model.preset = "gpt2-85m";
  config.model.layers = 7;
  config.model.ffn_width = 9;
  config.model.gpt2.gelu = GeluForm::kErf;
  config.model.recompute = true;
  config.train.tokens = kMaxCount;
  config.optim.lr = 0.1 + 0.2;
  config.parallel.model.value = 4;
  config.checkpoint.async = false;
  config.checkpoint.words = {1000000, 2000000};
  config.metrics.listen = "off";
  return config;
}

TEST(Config, DumpReadsBackEqual) {
  const Config config = changed_everywhere();
  const std::string text = dump_config(config, {"anabranch 0", "two\nlines: x"});
  EXPECT_EQ(parse_config(text, "other.yaml"), config) << text;
  EXPECT_THAT(text, testing::StartsWith("# anabranch 0\n# two lines: x\nschema: 1\n"));
  const Config defaults = parse_config("", "c.yaml");
  EXPECT_EQ(parse_config(dump_config(defaults), "c.yaml"), defaults);
}

TEST(Config, DumpMarksWhatWasChanged) {
  const std::string text =
      dump_config(parse_config("model: {preset: gpt2-85m}\noptim: {lr: 0.5}\n", "c.yaml"));
  EXPECT_THAT(text, HasSubstr("  lr: 0.5                         # default 0.0006\n"));
  EXPECT_THAT(text, HasSubstr("  layers: 12\n"));  // the preset's own
  EXPECT_THAT(text, HasSubstr("  clip: 1\n"));
}

TEST(Config, LoadNamesTheFile) {
  const test::TempDir folder;
  const std::string dir = folder.path();
  const auto refused = [](const std::string& path) {
    return test::refusal([&] { load_config(path); });
  };
  EXPECT_THAT(refused(dir + "/none.yaml"), HasSubstr("none.yaml: no such file"));
  EXPECT_THAT(refused(dir), HasSubstr("not a file"));
  std::ofstream(dir + "/empty.yaml").close();
  EXPECT_THAT(refused(dir + "/empty.yaml"), HasSubstr("is empty"));
  std::ofstream(dir + "/good.yaml") << "optim: {lr: 0.5}\n";
  EXPECT_EQ(load_config(dir + "/good.yaml", {"optim.clip=2"}).optim.clip, 2);
}

TEST(Config, HelpAndTableHaveEveryKey) {
  const std::string help = config_help();
  const std::string table = config_table();
  for (const char* key : {"lr", "precision", "sources", "deadline_seconds", "listen"}) {
    EXPECT_THAT(help, HasSubstr(std::string("  ") + key + " "));
  }
  EXPECT_THAT(table, HasSubstr("| `optim.beta2` | `0.95` | 0 to 0.999999 |"));
  EXPECT_THAT(table, HasSubstr("| `train.steps` | `0` | >= 0 |"));
  EXPECT_THAT(table, HasSubstr("none, gpt2-2core, gpt2-85m"));
}

// configs/README.md holds the table; `anabranch config keys --markdown` prints it.
TEST(Config, ReadmeTableIsCurrent) {
  std::ifstream in(std::string(AB_SOURCE_DIR) + "/configs/README.md");
  std::ostringstream text;
  text << in.rdbuf();
  EXPECT_THAT(text.str(), HasSubstr(config_table()));
}

}  // namespace

}  // namespace anabranch
