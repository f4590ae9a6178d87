#include <cmath>
#include <iostream>
#include <memory>
#include <optional>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "data/bigram.h"
#include "data/validation.h"
#include "launch/eval_core.h"
#include "launch/inference.h"
#include "launch/options.h"
#include "launch/program.h"
#include "launch/progress.h"
#include "runtime/config/number.h"
#include "runtime/evaluator.h"

namespace anabranch {
namespace {

struct EvalWish {
  ModelWish model;
  CoreWish core;
  std::string suite = "perplexity", data;
  int64_t micro_batch = 8, max_tokens = 0, train_tokens = 65536, stride = 0;
  bool bigram = false, json = false;
};

constexpr const char* kBigram = "bigram";

// One line of the result table.
struct Row {
  std::string split, model;
  EvalReport report;
};

// The same files as a split of its own, for Validation.
DataSource as_split(const TokenStream& tokens, const std::string& name) {
  std::vector<ShardReader> shards;
  for (const ShardReader& shard : tokens.shards()) shards.emplace_back(shard.path());
  DataSource source;
  source.name = name;
  source.val = TokenStream(std::move(shards));
  return source;
}

EvalReport measure(LoadedModel& loaded, const DataSource& source, const EvalWish& wish,
                   int64_t max_tokens, Routing routing, RankProcess& process) {
  const int64_t vocabulary = loaded.model->vocabulary();
  const Validation split(
      source, vocabulary,
      {loaded.model->context(), wish.micro_batch, process.context().rank, process.context().size,
       max_tokens, loaded.config.data.document_mask, wish.stride});
  std::optional<Progress> progress;
  if (process.first()) {
    progress.emplace("eval " + source.name, static_cast<double>(split.batches()),
                     Progress::Unit::kCount);
  }
  int64_t i = 0;
  const auto next = [&](MicroBatch& batch) {
    if (progress) progress->update(static_cast<double>(i));
    if (i == split.batches()) return false;
    const Batch from = split.at(i++);
    batch = {from.inputs, from.targets, 0, from.document_starts};
    return true;
  };
  const std::vector<int32_t> bytes(loaded.tokenizer.token_bytes().begin(),
                                   loaded.tokenizer.token_bytes().end());
  return evaluate(*loaded.model, next, bytes, process.world(), routing);
}

// The headline figure, and beside it that of a model that looks ahead as it was trained.
void measure_both(std::vector<Row>& rows, LoadedModel& loaded, const DataSource& source,
                  const EvalWish& wish, int64_t max_tokens, RankProcess& process) {
  const auto add = [&](Routing routing) {
    rows.push_back(
        {source.name, "model", measure(loaded, source, wish, max_tokens, routing, process)});
  };
  if (loaded.model->has_causal_mode()) add(Routing::kCausal);
  if (loaded.model->looks_ahead()) add(Routing::kAsTrained);
}

void check_tokenizer(const LoadedModel& loaded, const Dataset& dataset) {
  if (dataset.tokenizer().sha256 == loaded.tokenizer.sha256()) return;
  throw data_error(dataset.path(), " was made by another tokenizer (SHA-256 ",
                   dataset.tokenizer().sha256, ") than the model's (", loaded.tokenizer.sha256(),
                   "); build shards with the run's tokenizer.json");
}

std::vector<Row> measure_all(LoadedModel& loaded, const Dataset& dataset, const EvalWish& wish,
                             RankProcess& process) {
  std::vector<Row> rows;
  for (const DataSource& source : dataset.sources()) {
    const DataSource train = as_split(source.train, source.name + " train");
    const DataSource val = as_split(source.val, source.name + " validation");
    if (wish.train_tokens > 0) {
      measure_both(rows, loaded, train, wish, wish.train_tokens, process);
    }
    if (val.val.tokens() < 2) continue;
    measure_both(rows, loaded, val, wish, wish.max_tokens, process);
    if (!wish.bigram) continue;
    const BigramResult fitted = bigram(source.train, source.val, loaded.model->vocabulary(),
                                       loaded.tokenizer.token_bytes());
    EvalReport report;
    report.loss = fitted.nats_per_token;
    report.perplexity = std::exp(report.loss);
    report.bits_per_byte = fitted.bits_per_byte;
    report.tokens = fitted.tokens;
    rows.push_back({val.name, kBigram, report});
  }
  return rows;
}

constexpr const char* kNoHeadline =
    "no headline figure: the model sees what comes later and has no causal mode";

// How the model does beside the bigram.
std::string verdict(const Row& model, const Row& bigram) {
  const double lead = bigram.report.loss - model.report.loss;
  return lead > 0
             ? fmt::format("{}: the model beats the bigram by {:.4f} nats a token\n", model.split,
                           lead)
             : fmt::format(
                   "{}: the model does not beat the bigram, it is {:.4f} nats a token behind\n",
                   model.split, -lead);
}

void print(const std::vector<Row>& rows, const LoadedModel& loaded, const std::string& device,
           int64_t stride, bool json) {
  if (json) {
    auto all = nlohmann::ordered_json::array();
    for (const Row& row : rows) {
      all.push_back({{"split", row.split},
                     {"model", row.model},
                     {"looks_ahead", row.report.looks_ahead},
                     {"loss", row.report.loss},
                     {"perplexity", row.report.perplexity},
                     {"bits_per_byte", row.report.bits_per_byte},
                     {"tokens", row.report.tokens}});
    }
    nlohmann::ordered_json document = {{"checkpoint", loaded.checkpoint.string()},
                                       {"step", loaded.manifest.step},
                                       {"device", device},
                                       {"context", loaded.model->context()},
                                       {"stride", stride},
                                       {"results", all}};
    if (!loaded.model->has_causal_mode()) document["no_headline"] = kNoHeadline;
    std::cout << document.dump(2) << "\n";
    return;
  }
  std::cout << "checkpoint of step " << loaded.manifest.step << ": " << loaded.checkpoint.string()
            << "\n"
            << fmt::format("windows of {}, {} apart\n", counted(loaded.model->context(), "token"),
                           stride)
            << fmt::format("{:<20} {:<8} {:>8} {:>12} {:>11} {:>10}\n", "split", "model", "loss",
                           "perplexity", "bits/byte", "tokens");
  for (const Row& row : rows) {
    std::cout << fmt::format("{:<20} {:<8} {:>8.4f} {:>12.2f} {:>11.4f} {:>10}{}\n", row.split,
                             row.model, row.report.loss, row.report.perplexity,
                             row.report.bits_per_byte, row.report.tokens,
                             row.report.looks_ahead ? "  sees the future: no headline figure" : "");
  }
  const Row* headline = nullptr;
  for (const Row& row : rows) {
    if (row.model != kBigram && !row.report.looks_ahead) headline = &row;
    const bool beside = headline != nullptr && headline->split == row.split;
    if (row.model == kBigram && beside) std::cout << verdict(*headline, row);
  }
  if (!loaded.model->has_causal_mode()) std::cout << kNoHeadline << "\n";
}

int run(const EvalWish& wish, RankProcess& process) {
  LoadedModel loaded = load_on_device(wish.model, process);
  if (wish.suite == "core") {
    eval_core(wish.core, loaded, process, wish.json);
    return 0;
  }
  if (wish.stride > loaded.model->context()) {
    throw usage_error("--stride: found ", wish.stride, "; expected at most the model's context, ",
                      loaded.model->context());
  }
  const std::string data = wish.data.empty() ? loaded.config.data.path : wish.data;
  if (data.empty()) {
    throw usage_error("--data: the model was imported without any; name a data set");
  }
  const Dataset dataset = Dataset::open(data);
  check_tokenizer(loaded, dataset);
  const std::vector<Row> rows = measure_all(loaded, dataset, wish, process);
  const int64_t stride = wish.stride > 0 ? wish.stride : loaded.model->context();
  if (process.first()) print(rows, loaded, process.devices().hardware(), stride, wish.json);
  return 0;
}

}  // namespace

void add_eval(CLI::App& app, int& exit_code) {
  CLI::App* verb =
      app.add_subcommand("eval", "measures a trained model; under mpirun the ranks share the work");
  auto wish = std::make_shared<EvalWish>();
  add_model_options(*verb, wish->model);
  add_word(*verb, "--suite", wish->suite, {"perplexity", "core"}, "what to measure");
  add_core_options(*verb, wish->core);
  verb->add_option("--data", wish->data, "data set; default: the run's");
  add_whole(*verb, "--micro-batch", wish->micro_batch, {1, 65536}, "sequences at a time");
  add_whole(*verb, "--max-tokens", wish->max_tokens, {},
            "of each validation split; 0: all. The training split has its own");
  add_whole(*verb, "--train-tokens", wish->train_tokens, {},
            "of the training split, measured beside it; 0: none");
  add_whole(*verb, "--stride", wish->stride, {},
            "tokens from one window to the next, scored given all of the context that is left; 0: "
            "windows side by side");
  verb->add_flag("--bigram", wish->bigram, "measures a bigram model on the same split");
  verb->add_flag("--json", wish->json, "machine-readable results");
  verb->callback([wish, &exit_code] {
    exit_code = run_rank([&](RankProcess& process) { return run(*wish, process); });
  });
}

}  // namespace anabranch
