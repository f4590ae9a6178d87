#include "runtime/run_data.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/base/error.h"
#include "data/tokenizer/tokenizer.h"
#include "data/validation.h"
#include "parallel/topology.h"
#include "runtime/config/budget.h"
#include "runtime/config/number.h"

namespace anabranch {
namespace {

const char* const kIdentity = "data";  // the manifest's fact

// Each rank verifies every `ranks`-th file.
void verify_share(const Dataset& dataset, int rank, int ranks) {
  int64_t number = 0;
  for (const DataSource& source : dataset.sources()) {
    for (const TokenStream* stream : {&source.train, &source.val}) {
      for (const ShardReader& shard : stream->shards()) {
        if (number++ % ranks == rank) shard.verify();
      }
    }
  }
}

// The shares of the sources, in the data set's order; empty: as it was built.
std::vector<double> weights_of(const Dataset& dataset, const std::vector<SourceConfig>& shares) {
  if (shares.empty()) return {};
  std::vector<double> weights(dataset.sources().size(), 0);
  for (const SourceConfig& share : shares) {
    const auto found = std::ranges::find(dataset.sources(), share.name, &DataSource::name);
    if (found == dataset.sources().end()) {
      std::string names;
      for (const DataSource& source : dataset.sources()) names += " " + source.name;
      throw config_error("data.sources names ", share.name, ", but ", dataset.path(), " has",
                         names);
    }
    weights[static_cast<size_t>(found - dataset.sources().begin())] = share.weight;
  }
  return weights;
}

LoaderOptions options_of_rank(const Config& config, const Dataset& dataset, const BatchPlan& plan,
                              const Group& world, Trace* trace) {
  LoaderOptions o = loader_options(config, dataset);
  o.micro_batch = config.train.micro_batch;
  o.micro_batches = plan.accumulation;
  o.rank = world.rank();
  o.ranks = world.size();
  o.trace = trace;
  return o;
}

// Masked steps put the vocabulary's last entry where tokens are hidden: no text may have it.
void check_mask(const Config& config, const Tokenizer& tokenizer) {
  const bool masks =
      config.model.type == ModelType::kMoepMsit && config.model.moep.causal_ratio < 1;
  const auto last = static_cast<TokenId>(tokenizer.vocab_size() - 1);
  const bool free = tokenizer.token_bytes().back() == 0 && tokenizer.bos_id() != last &&
                    tokenizer.eos_id() != last;
  if (!masks || free) return;
  throw config_error("model.causal_ratio is ", config.model.moep.causal_ratio,
                     ", and masked steps need a mask token, the last of the vocabulary; token ",
                     last, " of ", config.data.path, " is another: train a tokenizer with ",
                     "--special '[MASK]' after the other special tokens");
}

}  // namespace

LoaderOptions loader_options(const Config& config, const Dataset& dataset) {
  check_budget_vocabulary(config.train, dataset.tokenizer().vocab_size);
  LoaderOptions o;
  o.T = config.model.context;
  o.micro_batch = config.train.batch_tokens / config.model.context;
  o.seed = static_cast<uint64_t>(config.data.seed);
  o.packing = config.data.packing;
  o.with_document_starts = config.data.document_mask;
  o.prefetch = static_cast<int>(config.data.prefetch);
  o.weights = weights_of(dataset, config.data.sources);
  return o;
}

void fill_steps(Config& config, const Dataset& dataset) {
  if (config.train.epochs <= 0) return;
  LoaderOptions options = loader_options(config, dataset);
  options.prefetch = 1;
  const Loader loader(dataset, options);
  const auto samples = static_cast<double>(loader.samples_per_epoch());
  const auto a_step = static_cast<double>(loader.samples_per_step());
  constexpr double kRounding = 1 - 1e-12;  // 0.1 x 30 is not a step more than 3
  const auto steps = std::max<int64_t>(
      1, static_cast<int64_t>(std::ceil(config.train.epochs * samples / a_step * kRounding)));
  if (config.train.steps != 0 && config.train.steps != steps) {
    throw config_error("train.steps ", config.train.steps, " and train.epochs ",
                       config.train.epochs, " are both set, and in ", dataset.path(), " that is ",
                       counted(steps, "step"), ": give one of them and leave the other at 0");
  }
  config.train.steps = steps;
  validate(config);
}

void check_words(const Config& config, const Loader& loader) {
  if (config.checkpoint.words.empty() || loader.knows_words()) return;
  throw data_error("checkpoint.words is set, but ", config.data.path,
                   " has no count of words: ", "build it again, or leave checkpoint.words out");
}

RunData::RunData(const Config& config, const BatchPlan& plan, Group& world,
                 const RankContext& context)
    : config_(config),
      dataset_(Dataset::open(config.data.path)),
      options_(options_of_rank(config, dataset_, plan, world, context.trace)),
      pool_(context.host_pool()) {
  if (config.data.verify) verify_share(dataset_, world.rank(), world.size());
  require_same(world, "the data set " + config.data.path, dataset_.fingerprint());
  const Tokenizer tokenizer = Tokenizer::load(dataset_.tokenizer_path());
  check_mask(config, tokenizer);
  token_bytes_.assign(tokenizer.token_bytes().begin(), tokenizer.token_bytes().end());
  loader_ = std::make_unique<Loader>(dataset_, options_);
  check_words(config, *loader_);
  identity_ = loader_->identity();
}

void RunData::start(int64_t first_sample) {
  if (options_.start_sample == first_sample) return;  // the constructor's loader is there already
  options_.start_sample = first_sample;
  loader_ = std::make_unique<Loader>(dataset_, options_);
}

MicroBatch RunData::placed(Batch batch) const {
  MicroBatch micro;
  micro.first_sample = batch.samples.empty() ? 0 : batch.samples.front();
  for (auto [to, from] :
       {std::pair{&micro.inputs, &batch.inputs}, std::pair{&micro.targets, &batch.targets},
        std::pair{&micro.document_starts, &batch.document_starts}}) {
    if (from->empty()) continue;
    *to = Tensor(from->shape(), from->dtype(), pool_, "batch");
    to->copy_from(*from);
  }
  return micro;
}

MicroBatch RunData::next() { return placed(loader_->next()); }

std::optional<int64_t> RunData::words_before(int64_t sample) const {
  if (!loader_->knows_words()) return std::nullopt;
  return loader_->words_before(sample);
}

std::string RunData::source_name(size_t source) const {
  return sources() == 1 ? std::string() : dataset_.sources()[source].name;
}

std::function<bool(MicroBatch&)> RunData::validation(size_t source) const {
  const DataSource& from = dataset_.sources()[source];
  if (from.val.tokens() < 2) return {};
  ValidationOptions o;
  o.T = options_.T;
  o.micro_batch = options_.micro_batch;
  o.rank = options_.rank;
  o.ranks = options_.ranks;
  o.max_tokens = config_.eval.max_tokens;
  o.with_document_starts = options_.with_document_starts;
  const auto batches = std::make_shared<Validation>(from, vocabulary(), o);
  return [this, batches, i = int64_t{0}](MicroBatch& batch) mutable {
    if (i == batches->batches()) return false;
    batch = placed(batches->at(i++));
    return true;
  };
}

void RunData::check_same(const Manifest& manifest) const {
  const auto found = manifest.facts.find(kIdentity);
  const std::string saved = found == manifest.facts.end() ? "none" : found->second;
  if (saved == identity_) return;
  throw data_error("the checkpoint of step ", manifest.step, " is at sample ", manifest.next_sample,
                   " of other data.\n  checkpoint: ", saved, "\n  this run:   ", identity_,
                   "\nGive the run its own data, seed, packing and context, or another run.dir.");
}

}  // namespace anabranch
