// GPT-2 by Hugging Face: the recorded one in, and the same out again; its variants, and folders
// that are not what they say.
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "core/base/read_file.h"
#include "core/tensor/convert.h"
#include "runtime/interchange/export.h"
#include "runtime/interchange/import.h"
#include "runtime/interchange/safetensors.h"
#include "runtime/loaded_model.h"
#include "tests/support/reference.h"
#include "tests/support/temp_dir.h"

namespace anabranch {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;

const std::string kRecorded = std::string(AB_SOURCE_DIR) + "/tests/reference/";

// The tensors of a file in float64, by name.
std::map<std::string, Tensor> tensors_of(const fs::path& file) {
  const SafetensorsReader reader(file.string());
  std::map<std::string, Tensor> tensors;
  for (const SafetensorsEntry& e : reader.entries()) {
    Tensor value(e.shape, DType::kF64);
    reader.read(e, value);
    tensors.emplace(e.name, value);
  }
  return tensors;
}

class HfGpt2 : public testing::Test {
 protected:
  HfGpt2() {
    fs::create_directory(from_);
    for (const char* name : {"config.json", "model.safetensors"}) {
      fs::copy_file(kRecorded + "hf_gpt2/" + name, from_ / name);
    }
    fs::copy_file(kRecorded + "tokenizer/gpt2.json", from_ / "tokenizer.json");
  }

  [[nodiscard]] std::map<std::string, Tensor> tensors() const {
    return tensors_of(from_ / "model.safetensors");
  }

  // Writes tensors as `type`, in place of those of a file.
  void write(const std::map<std::string, Tensor>& tensors, DType type = DType::kF32,
             const std::string& name = "model.safetensors") const {
    std::vector<StateItem> items;
    for (const auto& [key, value] : tensors) {
      items.push_back(StateItem::whole(key, converted(value, type, "test")));
    }
    write_safetensors((from_ / name).string(), items, {});
  }

  void set(const char* key, const json& value) const {
    const std::string path = (from_ / "config.json").string();
    json config = json::parse(read_file(path));
    config[key] = value;
    std::ofstream(path) << config;
  }

  ImportReport import() const { return import_run({from_, run_, {}}); }

  void expect_the_logits(test::Tolerance tolerance = test::kModelF32) const {
    LoadedModel loaded = find_model(run_, std::nullopt);
    load_weights(loaded, nullptr);
    const test::Reference want("hf_gpt2/logits.h5");
    test::expect_close(loaded.model->logits(want.integers("ids")), want.real("logits"), tolerance,
                       "logits");
  }

  // What the folder is refused with; nothing is left behind.
  [[nodiscard]] std::string refused(Fault fault = Fault::kData) const {
    std::string why = "accepted";
    try {
      import();
    } catch (const Error& error) {
      EXPECT_EQ(error.fault(), fault) << error.what();
      why = error.what();
    }
    EXPECT_FALSE(fs::exists(run_));
    EXPECT_EQ(std::distance(fs::directory_iterator(dir_.path()), fs::directory_iterator()), 1)
        << "something half-written is left";
    return why;
  }

  const test::TempDir dir_;
  const fs::path from_ = dir_ / "from", run_ = dir_ / "run";
};

TEST_F(HfGpt2, HasTheLogitsThatTransformersGives) {
  const ImportReport report = import();
  EXPECT_EQ(report.format, "hf");
  EXPECT_EQ(report.tensors, 28);
  EXPECT_EQ(report.padding, 0);
  expect_the_logits();
}

TEST_F(HfGpt2, ComesOutAsItWentIn) {
  import();
  export_run({.path = run_, .out = dir_ / "out"});
  const SafetensorsReader out((dir_ / "out" / "model.safetensors").string());
  EXPECT_EQ(out.metadata().at("format"), "pt");  // transformers asks for it
  const auto got = tensors_of(dir_ / "out" / "model.safetensors"), want = tensors();
  ASSERT_EQ(got.size(), want.size());
  for (const auto& [name, value] : want) {
    ASSERT_TRUE(got.contains(name)) << name;
    EXPECT_EQ(got.at(name).shape(), value.shape()) << name;
    EXPECT_EQ(test::values(got.at(name)), test::values(value)) << name;
  }
  const json ours = json::parse(read_file((dir_ / "out" / "config.json").string()));
  const json theirs = json::parse(read_file((from_ / "config.json").string()));
  for (const char* key : {"activation_function", "architectures", "model_type", "n_embd", "n_head",
                          "n_inner", "n_layer", "n_positions", "vocab_size", "layer_norm_epsilon",
                          "bos_token_id", "eos_token_id", "tie_word_embeddings"}) {
    EXPECT_EQ(ours.at(key), theirs.at(key)) << key;
  }
}

TEST_F(HfGpt2, OtherTypesAreRead) {
  const auto all = tensors();
  write(all, DType::kF64);
  import();
  expect_the_logits();
  fs::remove_all(run_);
  write(all, DType::kBF16);
  import();
  expect_the_logits(test::op_tolerance(DType::kBF16));
}

TEST_F(HfGpt2, ShardsAreReadByTheirIndex) {
  const auto all = tensors();
  fs::remove(from_ / "model.safetensors");
  std::map<std::string, Tensor> parts[2];
  json map;
  int i = 0;
  for (const auto& [name, value] : all) {
    parts[i % 2].emplace(name, value);
    map[name] = join("model-0000", 1 + i++ % 2, "-of-00002.safetensors");
  }
  write(parts[0], DType::kF32, "model-00001-of-00002.safetensors");
  write(parts[1], DType::kF32, "model-00002-of-00002.safetensors");
  const auto index = [&](const json& weight_map) {
    std::ofstream(from_ / "model.safetensors.index.json") << json{{"weight_map", weight_map}};
  };
  json wrong = map;
  wrong["transformer.wte.weight"] = "../elsewhere";
  index(wrong);
  EXPECT_THAT(refused(), HasSubstr("no plain file name"));
  wrong["transformer.wte.weight"] = "model-00003-of-00002.safetensors";
  index(wrong);
  EXPECT_THAT(refused(), HasSubstr("no such file"));
  wrong.erase("transformer.wte.weight");
  index(wrong);
  EXPECT_THAT(refused(), HasSubstr("\"transformer.wte.weight\" is not listed"));
  wrong = map;
  wrong["transformer.wte.weight"] = map["transformer.wpe.weight"];
  index(wrong);
  EXPECT_THAT(refused(), HasSubstr("\"transformer.wte.weight\" in"));
  index(json::array());
  EXPECT_THAT(refused(), HasSubstr("no \"weight_map\""));
  index(map);
  import();
  expect_the_logits();
}

// As the hub has the first GPT-2: no prefix, masks beside the weights.
TEST_F(HfGpt2, MasksAndMissingPrefixesAreKnown) {
  std::map<std::string, Tensor> old;
  for (const auto& [name, value] : tensors()) old.emplace(name.substr(12), value);
  old.emplace("h.0.attn.bias", test::full({1, 1, 24, 24}, 1));
  old.emplace("h.1.attn.masked_bias", test::full({}, -1e4));
  write(old);
  EXPECT_THAT(import().ignored, testing::ElementsAre("h.0.attn.bias", "h.1.attn.masked_bias"));
  expect_the_logits();
  fs::remove_all(run_);
  old.emplace("h.2.attn.bias", test::full({1}, 1));
  write(old);
  EXPECT_THAT(refused(), HasSubstr("holds h.2.attn.bias, which the model of its config.json"));
  old.erase("h.2.attn.bias");
  old.emplace("transformer.wpe.weight", old.at("wpe.weight"));
  write(old);
  EXPECT_THAT(refused(), HasSubstr("the same without its prefix"));
}

TEST_F(HfGpt2, AHeadMustBeTheTable) {
  auto all = tensors();
  all.emplace("lm_head.weight", all.at("transformer.wte.weight"));
  write(all);
  set("tie_word_embeddings", false);
  import();
  expect_the_logits();
  fs::remove_all(run_);
  all.at("lm_head.weight") = all.at("transformer.wte.weight").copy_in(nullptr);
  all.at("lm_head.weight").data<double>()[5] += 1;
  write(all);
  EXPECT_THAT(refused(), HasSubstr("lm_head.weight is not transformer.wte.weight"));
  write(tensors_of(kRecorded + "hf_gpt2/model.safetensors"));
  EXPECT_THAT(refused(), HasSubstr("tie_word_embeddings is false, and lm_head.weight is missing"));
}

TEST_F(HfGpt2, RowsWithoutATokenAreLeftOut) {
  auto all = tensors();
  const Tensor table = all.at("transformer.wte.weight");
  Tensor padded = test::full({1216, 32}, 9);
  std::copy_n(table.data<double>(), table.count(), padded.data<double>());
  all.at("transformer.wte.weight") = padded;
  write(all);
  EXPECT_THAT(refused(), HasSubstr("transformer.wte.weight is [1216, 32]; expected [1200, 32]"));
  set("vocab_size", 1216);
  EXPECT_EQ(import().padding, 16);
  expect_the_logits();
  fs::remove_all(run_);
  set("vocab_size", 1100);
  EXPECT_THAT(refused(), HasSubstr("vocab_size is 1100, and the tokenizer has 1200 tokens"));
}

TEST_F(HfGpt2, TensorsThatDoNotFitAreNamed) {
  auto all = tensors();
  const auto without = [&](const char* name) {
    auto fewer = all;
    fewer.erase(name);
    return fewer;
  };
  write(without("transformer.h.1.mlp.c_fc.bias"));
  EXPECT_THAT(refused(), HasSubstr("lacks the tensors transformer.h.1.mlp.c_fc.bias"));
  auto more = all;
  more.emplace("transformer.h.0.attn.rotary", test::full({2}, 0));
  write(more);
  EXPECT_THAT(refused(), HasSubstr("holds transformer.h.0.attn.rotary, which the model"));
  more = all;
  more.at("transformer.h.0.attn.c_attn.weight") = test::full({96, 32}, 0);  // not transposed
  write(more);
  EXPECT_THAT(refused(),
              HasSubstr("c_attn.weight is [96, 32]; expected [32, 96], input by output"));
  more = all;
  more.at("transformer.ln_f.bias") = test::full({32}, NAN);
  write(more);
  EXPECT_THAT(refused(), HasSubstr("tensor \"transformer.ln_f.bias\" holds a value that is not"));
}

TEST_F(HfGpt2, ModelsThatComputeSomethingElseAreRefusedByKey) {
  const auto with = [&](const char* key, const json& value) {
    const std::string kept = read_file((from_ / "config.json").string());
    set(key, value);
    const std::string why = refused();
    std::ofstream(from_ / "config.json") << kept;
    return why;
  };
  EXPECT_THAT(with("model_type", "gpt_neox"), HasSubstr("model_type is \"gpt_neox\"; expected"));
  EXPECT_THAT(with("activation_function", "relu"), HasSubstr("activation_function is \"relu\""));
  EXPECT_THAT(with("scale_attn_by_inverse_layer_idx", true),
              HasSubstr("inverse_layer_idx is true"));
  EXPECT_THAT(with("scale_attn_weights", false), HasSubstr("scale_attn_weights is false"));
  EXPECT_THAT(with("add_cross_attention", true), HasSubstr("add_cross_attention is true"));
  EXPECT_THAT(with("n_head", 5), HasSubstr("n_head is 5; expected a divisor of n_embd 32"));
  EXPECT_THAT(with("n_layer", 1e9), HasSubstr("n_layer is 1000000000.0"));
  EXPECT_THAT(with("n_layer", -1), HasSubstr("n_layer is -1"));
  EXPECT_THAT(with("n_layer", 4096), HasSubstr("lacks the tensors"));
  EXPECT_THAT(with("n_embd", 1048576), HasSubstr("expected [1200, 1048576]"));
  EXPECT_THAT(with("n_positions", json::array({1})), HasSubstr("n_positions is array"));
  EXPECT_THAT(with("layer_norm_epsilon", 0), HasSubstr("layer_norm_epsilon is 0"));
  std::ofstream(from_ / "config.json") << std::string(1 << 20, '[');
  EXPECT_THAT(refused(), HasSubstr("config.json is no JSON object"));
}

TEST_F(HfGpt2, WhatIsMissingInTheFolderIsNamed) {
  fs::remove(from_ / "tokenizer.json");
  EXPECT_THAT(refused(), HasSubstr("give --tokenizer FILE"));
  import_run({from_, run_, kRecorded + "tokenizer/gpt2.json"});
  expect_the_logits();
  EXPECT_THROW(import(), Error);  // the run is there already
  fs::remove_all(run_);
  fs::copy_file(kRecorded + "tokenizer/gpt2.json", from_ / "tokenizer.json");
  fs::rename(from_ / "model.safetensors", from_ / "pytorch_model.bin");
  EXPECT_THAT(refused(), HasSubstr("holds neither model.safetensors nor"));
  fs::remove(from_ / "config.json");
  EXPECT_THAT(refused(), HasSubstr("config.json: no such file"));
}

}  // namespace
}  // namespace anabranch
