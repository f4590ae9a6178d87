#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "data/shard/build.h"
#include "data/shard/dataset.h"
#include "launch/options.h"
#include "launch/program.h"
#include "launch/progress.h"
#include "launch/rank_process.h"
#include "launch/settings.h"
#include "launch/text_options.h"
#include "runtime/config/number.h"

namespace anabranch {

namespace {

using Json = nlohmann::ordered_json;

struct BuildWish {
  std::string tokenizer;
  std::vector<std::string> inputs, sources, weights;
  BuildOptions options;
  bool json = false;
};

// "name=rest" in two.
std::pair<std::string, std::string> split_pair(const std::string& flag, const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == text.size()) {
    throw usage_error(flag, " ", text, ": expected NAME=VALUE");
  }
  return {text.substr(0, equals), text.substr(equals + 1)};
}

std::vector<SourceOptions> read_sources(const BuildWish& wish, const TextFormat& format) {
  std::vector<SourceOptions> sources;
  if (!wish.inputs.empty()) sources.push_back({"text", wish.inputs, format, 0});
  const auto named = [&](const std::string& name) {
    return std::find_if(sources.begin(), sources.end(),
                        [&](const SourceOptions& source) { return source.name == name; });
  };
  for (const std::string& text : wish.sources) {
    const auto [name, path] = split_pair("--source", text);
    if (named(name) == sources.end()) sources.push_back({name, {}, format, 0});
    named(name)->inputs.push_back(path);
  }
  for (const std::string& text : wish.weights) {
    const auto [name, value] = split_pair("--weight", text);
    const auto source = named(name);
    if (source == sources.end()) throw usage_error("--weight ", text, ": no source ", name);
    source->weight = read_real("--weight " + text, value, {.above = true});
  }
  if (sources.empty()) throw usage_error("shard build: give text files, or --source NAME=PATH");
  return sources;
}

void print_report(const BuildWish& wish, const BuildReport& report) {
  Json sources = Json::array();
  double bytes = 0;
  for (const SourceReport& source : report.sources) {
    bytes += static_cast<double>(source.text_bytes);
    sources.push_back({{"name", source.name},
                       {"text_bytes", source.text_bytes},
                       {"train_documents", source.train_documents},
                       {"val_documents", source.val_documents},
                       {"train_tokens", source.train_tokens},
                       {"val_tokens", source.val_tokens},
                       {"train_words", source.train_words},
                       {"val_words", source.val_words},
                       {"empty_documents", source.empty_documents},
                       {"invalid_utf8_documents", source.invalid_utf8_documents}});
  }
  if (wish.json) {
    const Json document{{"path", wish.options.out},
                        {"shards", report.shards},
                        {"seconds", report.seconds},
                        {"sources", sources}};
    std::cout << document.dump(2) << "\n";
    return;
  }
  for (const SourceReport& source : report.sources) {
    std::cout << source.name << ": " << source.train_documents << " + " << source.val_documents
              << " documents, " << source.train_words << " + " << source.val_words << " words, "
              << source.train_tokens << " + " << source.val_tokens
              << " tokens (training + validation)\n";
    if (source.empty_documents > 0) {
      std::cout << "  left out " << counted(source.empty_documents, "document")
                << " without text\n";
    }
    if (source.invalid_utf8_documents > 0) {
      std::cout << "  kept byte for byte " << counted(source.invalid_utf8_documents, "document")
                << " of no valid UTF-8\n";
    }
  }
  std::cout << wish.options.out << ": " << counted(report.shards, "shard") << " in "
            << time_text(report.seconds) << ", " << bytes_text(bytes / report.seconds) << "/s\n";
}

int build(const BuildWish& wish, const TextFormat& format, RankProcess& process) {
  BuildOptions options = wish.options;
  options.sources = read_sources(wish, format);
  options.rank = process.context().rank;
  options.ranks = process.context().size;
  options.barrier = [&process] { process.world().barrier(); };
  const Tokenizer tokenizer = Tokenizer::load(wish.tokenizer);
  std::optional<Progress> bar;
  if (options.rank == 0) {
    options.progress = [&](const BuildProgress& now) {
      if (!bar) {
        bar.emplace("shard build", static_cast<double>(now.bytes_total), Progress::Unit::kBytes);
      }
      bar->update(static_cast<double>(now.bytes),
                  count_text(static_cast<double>(now.tokens), "token"));
    };
  }
  const BuildReport report = build_shards(tokenizer, options);
  if (bar) bar->finish();
  bar.reset();
  if (options.rank == 0) print_report(wish, report);
  return 0;
}

void add_build(CLI::App& shard) {
  auto wish = std::make_shared<BuildWish>();
  BuildOptions& options = wish->options;
  CLI::App* verb =
      shard.add_subcommand("build", "text to token shards; under mpirun every rank does its share");
  add_settings(*verb, "shard");
  verb->add_option("FILES", wish->inputs, "files, folders and patterns");
  verb->add_option("--source", wish->sources, "NAME=PATH: a source of a blend; repeat for more")
      ->allow_extra_args(false);
  verb->add_option("--weight", wish->weights, "NAME=W: its share of samples; default: by tokens")
      ->allow_extra_args(false);
  verb->add_option("--tokenizer", wish->tokenizer, "tokenizer.json")->required();
  verb->add_option("--out", options.out, "folder to make")->required();
  add_real(*verb, "--validation", options.validation_fraction, {0, 0.999},
           "share of documents kept apart");
  add_word<ValidationPlace>(
      *verb, "--validation-place", options.validation_place,
      {{"spread", ValidationPlace::kSpread}, {"last", ValidationPlace::kLast}},
      "which documents: spread over the text by a hash, or the last of each file");
  add_word<bool>(*verb, "--begin", options.begin_documents, {{"bos", true}, {"none", false}},
                 "what documents begin with: the tokenizer's first token, or no mark");
  add_whole(*verb, "--shard-tokens", options.shard_tokens, {1}, "tokens at which a shard ends");
  add_whole(*verb, "--workers", options.workers, {0, 1024},
            "threads that tokenise; 0: one for each core");
  verb->add_flag("--skip-empty", options.skip_empty, "leave out documents without text");
  verb->add_flag("--json", wish->json, "machine-readable report");
  auto format = add_text_options(*verb);
  verb->callback([wish, format] {
    (void)run_rank([&](RankProcess& process) { return build(*wish, *format, process); });
  });
}

Json tokenizer_json(const TokenizerFacts& facts) {
  return {{"name", facts.name},
          {"sha256", facts.sha256},
          {"vocab_size", facts.vocab_size},
          {"bos_id", facts.bos_id},
          {"eos_id", facts.eos_id}};
}

Json shard_json(const ShardReader& shard) {
  return {{"path", shard.path()},
          {"tokens", shard.tokens()},
          {"documents", shard.documents()},
          {"crc32c", shard.stated_crc32c()}};
}

Json dataset_json(const Dataset& dataset) {
  Json sources = Json::array();
  for (const auto& source : dataset.sources()) {
    Json files = Json::array();
    for (const auto* stream : {&source.train, &source.val}) {
      for (const ShardReader& shard : stream->shards()) files.push_back(shard_json(shard));
    }
    sources.push_back({{"name", source.name},
                       {"weight", source.weight},
                       {"train_tokens", source.train.tokens()},
                       {"val_tokens", source.val.tokens()},
                       {"train_words", source.train_words},
                       {"val_words", source.val_words},
                       {"shards", files}});
  }
  return {{"path", dataset.path()},
          {"fingerprint", dataset.fingerprint()},
          {"tokenizer", tokenizer_json(dataset.tokenizer())},
          {"train_tokens", dataset.train_tokens()},
          {"val_tokens", dataset.val_tokens()},
          {"sources", sources}};
}

// One "key: value" a line, lists of objects indented below their key.
void print_plain(const Json& object, const std::string& indent) {
  for (const auto& [key, value] : object.items()) {
    if (value.is_structured()) {
      std::cout << indent << key << ":\n";
      if (value.is_object()) print_plain(value, indent + "  ");
      for (size_t i = 0; value.is_array() && i < value.size(); ++i) {
        std::cout << indent << "- " << i << "\n";
        print_plain(value[i], indent + "  ");
      }
    } else {
      std::cout << indent << key << ": "
                << (value.is_string() ? value.get<std::string>() : value.dump()) << "\n";
    }
  }
}

void inspect(const std::string& path, bool json) {
  Json document;
  if (std::filesystem::is_directory(path)) {
    document = dataset_json(Dataset::open(path));
  } else {
    const ShardReader shard(path);
    document = shard_json(shard);
    document["tokenizer"] = tokenizer_json(shard.tokenizer());
  }
  if (json) {
    std::cout << document.dump(2) << "\n";
  } else {
    print_plain(document, "");
  }
}

void verify(const std::string& path) {
  if (std::filesystem::is_directory(path)) {
    Dataset::open(path).verify();
  } else {
    ShardReader(path).verify();
  }
  std::cout << path << ": good\n";
}

}  // namespace

void add_shard(CLI::App& app) {
  CLI::App* shard = app.add_subcommand("shard", "token shards: builds, shows, checks");
  shard->require_subcommand(1);
  add_build(*shard);

  auto path = std::make_shared<std::string>();
  auto json = std::make_shared<bool>(false);
  CLI::App* inspect_verb = shard->add_subcommand("inspect", "what a folder or a shard holds");
  inspect_verb->add_option("PATH", *path, "data directory or shard")->required();
  inspect_verb->add_flag("--json", *json, "machine-readable");
  inspect_verb->callback([path, json] { run_alone([&] { inspect(*path, *json); }); });

  CLI::App* verify_verb = shard->add_subcommand("verify", "reads everything, checks all checksums");
  verify_verb->add_option("PATH", *path, "data directory or shard")->required();
  verify_verb->callback([path] { run_alone([&] { verify(*path); }); });
}

}  // namespace anabranch
