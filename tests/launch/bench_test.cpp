#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <unistd.h>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/launch/run_program.h"

namespace anabranch {

namespace {

using Json = nlohmann::json;
using testing::HasSubstr;

const char* const kTwoRanks =
    "env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun --oversubscribe "
    "--bind-to none --mca mpi_yield_when_idle 1 -n 2";

class BenchTest : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(dir_);
    write("run.yaml",
          "model: {layers: 2, width: 32, heads: 2, context: 16}\n"
          "train: {precision: bf16, batch_tokens: 64, micro_batch: 2}\n");
  }

  void TearDown() override { std::filesystem::remove_all(dir_); }

  ProgramResult run(const std::string& arguments, const std::string& launcher = "") {
    return run_program(dir_, arguments, launcher);
  }

  // The JSON of `bench` with these arguments.
  Json bench(const std::string& arguments, const std::string& launcher = "") {
    const ProgramResult result = run("bench " + arguments + " --json", launcher);
    EXPECT_EQ(result.exit_code, 0) << arguments << ": " << result.err;
    Json document = Json::parse(result.out, nullptr, false);
    EXPECT_TRUE(document.is_object()) << arguments << ": " << result.out;
    return document;
  }

  // The same without --json says something too.
  void expect_text(const std::string& arguments, const std::string& word) {
    const ProgramResult result = run("bench " + arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out, HasSubstr(word));
  }

  void write(const std::string& name, const std::string& text) const {
    std::ofstream(dir_ + "/" + name, std::ios::binary) << text;
  }

  const std::string dir_ = testing::TempDir() + "bench_test_" + std::to_string(getpid());
};

// All are there and are finite numbers above 0.
void expect_positive(const Json& object, const std::vector<std::string>& keys) {
  for (const std::string& key : keys) {
    ASSERT_TRUE(object.contains(key)) << key << " is missing in " << object;
    ASSERT_TRUE(object[key].is_number()) << key << ": " << object[key];
    EXPECT_GT(object[key].get<double>(), 0) << key;
    EXPECT_TRUE(std::isfinite(object[key].get<double>())) << key;
  }
}

TEST_F(BenchTest, StepTimesAWholeStep) {
  const Json step = bench("step run.yaml --vocab 50 --warmup 1 --steps 3");
  EXPECT_EQ(step["ranks"], 1);
  EXPECT_EQ(step["tokens_per_step"], 64);
  expect_positive(
      step, {"threads", "parameters", "step_seconds", "step_seconds_min", "step_seconds_max",
             "tokens_per_second", "flop_per_second", "product_seconds", "linear_product_seconds",
             "attention_product_seconds", "attention_seconds", "product_share", "reduction_hidden",
             "optimizer_seconds", "optimizer_share", "pool_peak_bytes", "resident_peak_bytes"});
  const auto figure = [&](const char* key) { return step[key].get<double>(); };
  EXPECT_DOUBLE_EQ(figure("product_seconds"),
                   figure("linear_product_seconds") + figure("attention_product_seconds"));
  EXPECT_DOUBLE_EQ(figure("product_share"), figure("product_seconds") / figure("step_seconds"));
  EXPECT_DOUBLE_EQ(figure("tokens_per_second"), 64 / figure("step_seconds"));
  EXPECT_EQ(bench("step run.yaml --vocab 50 --warmup 0 --steps 1", kTwoRanks)["ranks"], 2);
}

// What makes run.yaml a small model of each family.
const std::map<std::string, std::vector<std::string>> kFamilies{
    {"gpt2", {"attention in documents forward"}},
    {"cmollm", {"streams dw", "stream_linear backward", "softmax forward"}},
    {"cmollm --set model.mode=pipeline",
     {"expand y", "merge projection dx", "mix_streams forward"}},
    {"cmollm --set model.variant=adaptive", {"gate feature dx", "adaptive_gate backward"}},
    {"parascale", {"merge hidden y", "with_prefix backward", "fold_streams forward"}},
    {"altup", {"altup_correct backward"}},
    {"kappa_moe --set model.moe_first=1",
     {"experts in dw", "router y", "kappa_swiglu forward", "swiglu of the experts backward",
      "top_k_route forward", "qk_norm backward"}},
    {"moep_msit --set model.expert_width=24 --set model.windows=[5,3]",
     {"experts qkv y", "up dx", "experts attention, window 5 forward", "expert_choice",
      "combine_rows backward"}},
};

TEST_F(BenchTest, EveryFamilyHasProductsAndOps) {
  for (const auto& [family, names] : kFamilies) {
    const std::string sets = " run.yaml --vocab 50 --set model.type=" + family;
    const Json step = bench("step" + sets + " --warmup 0 --steps 1");
    expect_positive(step, {"linear_product_seconds", "attention_product_seconds",
                           "attention_seconds", "product_share", "optimizer_seconds"});
    EXPECT_FALSE(step.contains("matrix_optimizer"));
    const Json ops = bench("ops" + sets + " --repeats 1");
    std::vector<std::string> found;
    for (const Json& op : ops["ops"]) {
      found.push_back(op["op"]);
      expect_positive(op, {"seconds", "bytes_per_second"});
    }
    for (const std::string& name : names) EXPECT_THAT(found, testing::Contains(name)) << family;
  }
}

TEST_F(BenchTest, OpsAreCountedWithoutRunningThem) {
  const std::string h100 = AB_SOURCE_DIR "/configs/machines/h100.yaml";
  const Json ops = bench("ops run.yaml --vocab 50 --count --machine " + h100)["ops"];
  const auto find = [&](const std::string& name) {
    for (const Json& op : ops) {
      if (op["op"] == name) return op;
    }
    ADD_FAILURE() << name << " is not in " << ops;
    return Json();
  };
  const double N = 32, C = 32;  // 2 sequences of 16 tokens
  const Json qkv = find("qkv y"), norm = find("layer_norm forward");
  EXPECT_FALSE(qkv.contains("seconds"));
  EXPECT_DOUBLE_EQ(qkv["flop"], 2 * N * C * 3 * C);
  EXPECT_DOUBLE_EQ(qkv["bytes"], 2 * (N * C + 3 * N * C + 3 * C * C));
  EXPECT_DOUBLE_EQ(norm["bytes"], 2 * 2 * N * C);
  EXPECT_EQ(norm["bound_by"], "memory");
  EXPECT_DOUBLE_EQ(norm["bound_seconds"], 2 * 2 * N * C / 3.35e12);
  const Json large =
      bench("ops run.yaml --vocab 5000 --count --set model.width=1024 --machine " + h100)["ops"]
          .front();
  EXPECT_DOUBLE_EQ(large["flop"], 2 * N * 1024 * 3072);
  const Json timed = bench("ops run.yaml --vocab 50 --repeats 1 --machine " + h100)["ops"].front();
  EXPECT_DOUBLE_EQ(timed["of_bound"].get<double>() * timed["seconds"].get<double>(),
                   timed["bound_seconds"]);
  expect_text("ops run.yaml --vocab 50 --count --machine " + h100, "at best ms");
  EXPECT_EQ(run("bench ops run.yaml --count --machine none.yaml").exit_code, 78);
}

TEST_F(BenchTest, StepTellsTheMatrixOptimizersRate) {
  for (const std::string matrix : {"muon", "aurora"}) {
    const std::string arguments =
        "step run.yaml --vocab 50 --warmup 0 --steps 1 --set optim.clip=0"
        " --set optim.matrix=" +
        matrix;
    expect_positive(bench(arguments)["matrix_optimizer"],
                    {"flop_per_second", "bare_flop_per_second", "of_bare", "seconds"});
    expect_text(arguments, "its matrix products");
  }
}

TEST_F(BenchTest, StepTakesTurnsWithAnotherConfiguration) {
  const std::string cmollm =
      "step run.yaml --vocab 50 --set model.type=cmollm --set model.streams=3 --pairs 6 ";
  const Json same = bench(cmollm + "--against run.seed=5");
  EXPECT_EQ(same["pairs"], 6);
  EXPECT_EQ(same["macs_ratio"], 1);
  EXPECT_EQ(same["first"]["parameters"], same["second"]["parameters"]);
  EXPECT_EQ(same["first"]["all_seconds"].size(), 6U);
  const Json& ratio = same["time_ratio"];
  expect_positive(ratio, {"median", "low", "high"});
  EXPECT_LE(ratio["low"], ratio["median"]);
  EXPECT_GE(ratio["high"], ratio["median"]);
  EXPECT_GE(ratio["confidence"], 0.95);

  // Of another family, which has no streams; and of other sizes.
  const Json dense = bench(cmollm + "--against model.type=gpt2 --against model.width=16");
  EXPECT_GT(dense["macs_ratio"], 2);
  EXPECT_EQ(dense["second"]["macs_per_token"], 2 * 12 * 16 * 16 + 50 * 16 + 2 * 2 * 16 * 8.5);
  expect_text(cmollm + "--against model.type=gpt2", "time ratio");
  EXPECT_EQ(
      run("bench " + cmollm + "--against model.type=gpt2 --against model.streams=2").exit_code, 78);
  EXPECT_EQ(run("bench " + cmollm + "--against parallel.threads=1").exit_code, 64);
  EXPECT_EQ(run("bench step run.yaml --pairs 6").exit_code, 64);
}

// Streams that lie on both ranks, by turns with copies of them.
TEST_F(BenchTest, StepTakesTurnsWithAnotherLayout) {
  const Json pair = bench(
      "step run.yaml --vocab 50 --set model.type=cmollm --set parallel.model=2 --pairs 6 --against "
      "parallel.model=1",
      kTwoRanks);
  EXPECT_EQ(pair["macs_ratio"], 1);
  EXPECT_LT(pair["first"]["parameters"], pair["second"]["parameters"]);
  expect_positive(pair["time_ratio"], {"median", "low", "high"});
}

TEST_F(BenchTest, OpsTimesEveryOpInBothTypes) {
  for (const std::string type : {"fp32", "bf16"}) {
    const Json ops = bench("ops run.yaml --vocab 50 --repeats 1 --type " + type);
    EXPECT_EQ(ops["precision"], type);
    EXPECT_EQ(ops["tokens"], 32);
    std::vector<std::string> names;
    for (const Json& op : ops["ops"]) {
      names.push_back(op["op"]);
      expect_positive(op, {"seconds", "bytes_per_second"});
      if (!op["flop_per_second"].is_null()) expect_positive(op, {"flop_per_second"});
    }
    for (const char* name :
         {"qkv y", "projection dx", "feed-forward out dw", "attention forward",
          "attention backward", "attention in documents forward", "add_layer_norm backward",
          "gelu forward", "add", "embedding backward", "head, loss and gradients",
          "adamw of a block", "squared_norm of a block"}) {
      EXPECT_THAT(names, testing::Contains(name));
    }
  }
  expect_text("ops run.yaml --vocab 50 --repeats 1", "GFLOP/s");
}

TEST_F(BenchTest, CommGivesBothBandwidths) {
  const std::string sizes = "comm --min-bytes 8 --max-bytes 100 --factor 4 --repeats 1";
  for (const int ranks : {1, 2}) {
    const Json comm = bench(sizes, ranks == 1 ? "" : kTwoRanks);
    EXPECT_EQ(comm["ranks"], ranks);
    ASSERT_EQ(comm["collectives"].size(), 12U);  // four at 8, 32 and 100 bytes
    for (const Json& c : comm["collectives"]) {
      expect_positive(c, {"bytes", "seconds", "algorithm_bandwidth"});
      const double times =
          (c["op"] == "all_reduce_sum" ? 2.0 : 1.0) * (ranks - 1) / static_cast<double>(ranks);
      EXPECT_DOUBLE_EQ(c["bus_bandwidth"], times * c["algorithm_bandwidth"].get<double>());
    }
    EXPECT_EQ(comm["collectives"][2]["bytes"], ranks == 1 ? 100 : 104);  // whole elements a rank
  }
  EXPECT_EQ(run("bench comm --min-bytes 9 --max-bytes 8").exit_code, 64);
  const std::string overlap = "comm --overlap --layers 2 --layer-mb 0.01 --embedding-mb 0.02 ";
  const Json hidden = bench(overlap + "--bucket-mb 0.01 --backward-ms 4 --steps 1", kTwoRanks);
  expect_positive(hidden, {"step_seconds", "communication_seconds"});
  EXPECT_TRUE(hidden.contains("waited_seconds"));
  EXPECT_GE(hidden["hidden"], 0);
  EXPECT_LE(hidden["hidden"], 1);
}

TEST_F(BenchTest, DispatchTakesTurnsWithAnAllToAll) {
  const std::string arguments = "dispatch --rows 32 --width 8 --experts 4 --pairs 6";
  const Json pair = bench(arguments + " --bf16", kTwoRanks);
  EXPECT_EQ(pair["ranks"], 2);
  EXPECT_EQ(pair["type"], "bf16");
  for (const char* side : {"dispatch", "plain"}) {
    expect_positive(pair[side], {"seconds"});
    EXPECT_EQ(pair[side]["all_seconds"].size(), 6U);
    double stages = 0;
    for (const Json& seconds : pair[side]["stages"]) stages += seconds.get<double>();
    EXPECT_GT(stages, 0) << side;
  }
  EXPECT_EQ(pair["time_ratio"]["pairs"], 6);
  // A row goes once to a rank; both ranks have the same rows, so a rank gets as much as it makes.
  EXPECT_GT(pair["bytes_out"], 32 * 8 * 2);
  EXPECT_LT(pair["bytes_out"], pair["bytes_home"]);
  EXPECT_GT(pair["bytes_home"], 32 * 8 * 2);
  const ProgramResult text = run("bench " + arguments, kTwoRanks);
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("time ratio"));
  EXPECT_EQ(run("bench " + arguments).exit_code, 64);  // alone
  EXPECT_EQ(run("bench dispatch --experts 2 --top-k 3", kTwoRanks).exit_code, 64);
}

TEST_F(BenchTest, StreamsTimesChunks) {
  const std::string arguments = "streams --rows 64 --width 8 --streams 3 --rounds 2";
  for (const std::string layout : {"", " --slice"}) {
    const Json streams = bench(arguments + layout + " --bf16", kTwoRanks);
    EXPECT_EQ(streams["hidden"], 32);
    EXPECT_EQ(streams["layout"], layout.empty() ? "gather" : "slice");
    ASSERT_EQ(streams["chunkings"].size(), 3U);  // of 64, 32 and 16 rows
    int64_t chunks = 1;
    for (const Json& c : streams["chunkings"]) {
      EXPECT_EQ(c["chunks"], chunks);
      EXPECT_EQ(c["rows"], 64 / chunks);
      expect_positive(c, {"seconds", "forward_seconds", "backward_seconds"});
      chunks *= 2;
    }
  }
  const ProgramResult text = run("bench " + arguments, kTwoRanks);
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("as in training"));
  EXPECT_EQ(run("bench " + arguments).exit_code, 64);  // alone
}

TEST_F(BenchTest, DataTimesTokenizerTrainingAndLoader) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += "the river leaves " + std::to_string(i) + " islands\n";
  write("text.txt", text);
  ASSERT_EQ(run("tokenizer train --vocab 300 --pattern gpt2 --out t.json text.txt").exit_code, 0);
  ASSERT_EQ(run("shard build --tokenizer t.json --document line --out d text.txt").exit_code, 0);

  const Json encoded = bench("data --text text.txt --tokenizer t.json --piece-kib 1 --rounds 2");
  EXPECT_EQ(encoded["encode"]["bytes"], text.size());
  EXPECT_GT(encoded["encode"]["pieces"], 5);
  expect_positive(encoded["encode"],
                  {"tokens", "threads", "seconds", "mib_per_second_per_thread", "load_seconds"});
  EXPECT_FALSE(encoded.contains("loader"));
  const Json whole = bench("data --text text.txt --tokenizer t.json --threads 2 --rounds 1");
  EXPECT_EQ(whole["encode"]["tokens"], encoded["encode"]["tokens"]);

  const Json all = bench(
      "data --text text.txt --train-vocab 300 --data d --context 8 --micro-batch 3 --batches 5");
  EXPECT_EQ(all["train"]["entries"], 300);
  EXPECT_EQ(all["train"]["bytes"], text.size());
  expect_positive(all["train"], {"seconds"});
  EXPECT_EQ(all["loader"]["tokens_per_batch"], 24);
  expect_positive(all["loader"], {"batch_seconds", "tokens_per_second", "start_seconds"});

  EXPECT_EQ(run("bench data").exit_code, 64);
  EXPECT_EQ(run("bench data --text none --train-vocab 300").exit_code, 65);
}

TEST_F(BenchTest, GenerateTimesPrefillAndDecode) {
  const std::string arguments =
      "generate run.yaml --vocab 50 --batch 2 --prompt-tokens 6 --rounds 1 --tokens ";
  expect_positive(bench(arguments + "4"),
                  {"threads", "parameters", "prefill_seconds", "prefill_tokens_per_second",
                   "decode_seconds", "decode_tokens_per_second", "pool_peak_bytes"});
  expect_text(arguments + "4", "decode");
  EXPECT_EQ(bench(arguments + "4 --set device=cpu")["device"], "cpu");
  EXPECT_EQ(run("bench " + arguments + "11").exit_code, 64);  // beyond the context
}

TEST_F(BenchTest, GenerateTakesTurnsWithAnotherConfiguration) {
  write("kappa.yaml",
        "model: {type: kappa_moe, layers: 2, width: 32, heads: 2, context: 16, moe_first: 1}\n"
        "train: {precision: bf16, batch_tokens: 64, micro_batch: 2}\n");
  const std::string arguments =
      "generate kappa.yaml --vocab 50 --batch 2 --prompt-tokens 6 --tokens 4 --rounds 7 --against ";
  const Json pair = bench(arguments + "model.kappa=false");
  // alpha and b of 8 experts with 128 hidden units
  EXPECT_EQ(pair["parameters"].get<int>() - pair["against"]["parameters"].get<int>(), 2 * 8 * 128);
  expect_positive(pair["against"], {"decode_seconds", "decode_tokens_per_second"});
  for (const char* name : {"prefill_throughput_ratio", "decode_throughput_ratio"}) {
    const Json& ratio = pair[name];
    expect_positive(ratio, {"median", "low", "high", "confidence"});
    EXPECT_EQ(ratio["pairs"], 7);
    EXPECT_GE(ratio["confidence"], 0.95);
    EXPECT_LE(ratio["low"], ratio["median"]);
    EXPECT_GE(ratio["high"], ratio["median"]);
  }
  expect_text(arguments + "model.kappa=false", "throughput over that one's");
  EXPECT_EQ(run("bench " + arguments + "model.kapa=false").exit_code, 78);
  EXPECT_EQ(run("bench " + arguments + "parallel.threads=1").exit_code, 64);
}

TEST_F(BenchTest, SaveTimesAndLeavesNothing) {
  std::filesystem::create_directory(dir_ + "/disk");
  const std::string arguments = "save run.yaml --vocab 50 --steps 2 --saves 3 --dir disk";
  for (const char* launcher : {"", kTwoRanks}) {
    const Json saved = bench(arguments, launcher);
    expect_positive(
        saved, {"ranks", "bytes", "step_seconds", "first_stall_seconds", "stall_seconds",
                "stall_share_of_step", "write_seconds", "write_bytes_per_second", "lost_seconds"});
    EXPECT_TRUE(std::filesystem::is_empty(dir_ + "/disk"));
  }
  expect_text(arguments, "stall");
  EXPECT_EQ(run("bench save run.yaml --vocab 50 --dir none").exit_code, 74);
}

TEST_F(BenchTest, AnInterruptedSaveLeavesNothing) {
  std::filesystem::create_directory(dir_ + "/disk");
  const std::string save = "bench save run.yaml --vocab 50 --steps 100000 --dir disk";
  const ProgramResult stopped = run(save, "timeout 1");
  EXPECT_EQ(stopped.exit_code, 124) << stopped.err;  // it did run until then
  EXPECT_TRUE(std::filesystem::is_empty(dir_ + "/disk"));
}

TEST_F(BenchTest, EachExplainsItself) {
  for (const std::string verb :
       {"step", "ops", "comm", "data", "dispatch", "generate", "save", "streams"}) {
    const ProgramResult help = run("bench " + verb + " --help");
    EXPECT_EQ(help.exit_code, 0) << verb;
    EXPECT_THAT(help.out, HasSubstr("--json")) << verb;
  }
}

}  // namespace

}  // namespace anabranch
