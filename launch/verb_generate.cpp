#include <iostream>
#include <memory>
#include <sstream>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "core/base/read_file.h"
#include "launch/inference.h"
#include "launch/options.h"
#include "launch/program.h"
#include "runtime/generator.h"

namespace anabranch {
namespace {

struct GenerateWish {
  ModelWish model;
  std::string prompt_file;
  std::vector<std::string> prompts;
  SamplingOptions sampling;
  bool json = false;
};

std::vector<std::string> read_lines(const std::string& file) {
  std::istringstream in(read_file(file));
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// A prompt begins like a document of the training data.
std::vector<int32_t> encode(const Tokenizer& tokenizer, const std::string& text) {
  std::vector<TokenId> ids;
  if (const auto bos = tokenizer.bos_id()) ids.push_back(*bos);
  tokenizer.encode_ordinary(text, ids);
  return {ids.begin(), ids.end()};
}

std::string decode(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  const std::vector<TokenId> all(ids.begin(), ids.end());
  return tokenizer.decode(all);
}

void generate_text(GenerateWish wish) {
  if (!wish.prompt_file.empty()) {
    for (const std::string& line : read_lines(wish.prompt_file)) wish.prompts.push_back(line);
  }
  if (wish.prompts.empty()) wish.prompts.emplace_back();
  RankProcess process(self_group());
  LoadedModel loaded = load_on_device(wish.model, process);
  std::vector<std::vector<int32_t>> prompts;
  for (const std::string& text : wish.prompts) prompts.push_back(encode(loaded.tokenizer, text));
  if (const auto eos = loaded.tokenizer.eos_id()) {
    wish.sampling.stop_token = static_cast<int32_t>(*eos);
  }
  const auto outputs = generate(*loaded.model, prompts, wish.sampling);
  for (size_t i = 0; i < outputs.size(); ++i) {
    const std::string text = decode(loaded.tokenizer, outputs[i]);
    if (wish.json) {
      const nlohmann::ordered_json line = {
          {"prompt", wish.prompts[i]}, {"text", text}, {"tokens", outputs[i]}};
      std::cout << line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
    } else {
      std::cout << wish.prompts[i] << text << "\n" << (i + 1 < outputs.size() ? "---\n" : "");
    }
  }
}

}  // namespace

void add_generate(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("generate", "samples text from a trained model");
  auto wish = std::make_shared<GenerateWish>();
  add_model_options(*verb, wish->model);
  verb->add_option("--prompt", wish->prompts, "text to continue; repeat for a batch")
      ->allow_extra_args(false);
  verb->add_option("--prompts", wish->prompt_file, "file with a prompt a line");
  SamplingOptions& sampling = wish->sampling;
  add_whole(*verb, "--tokens", sampling.max_tokens, {}, "new tokens of each prompt");
  add_real(*verb, "--temperature", sampling.temperature, {}, "0: the most likely token");
  add_whole(*verb, "--top-k", sampling.top_k, {}, "among the k most likely; 0: all");
  add_real(*verb, "--top-p", sampling.top_p, {0, 1, true}, "among those that add up to p");
  add_whole(*verb, "--seed", sampling.seed, {}, "of the samples");
  verb->add_flag("--json", wish->json, "one JSON object a prompt");
  verb->callback([wish] { run_alone([&] { generate_text(*wish); }); });
}

}  // namespace anabranch
