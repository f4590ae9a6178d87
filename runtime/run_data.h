// The data of a run: what it trains on and what it is measured on.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/loader.h"
#include "data/shard/dataset.h"
#include "parallel/comm/group.h"
#include "parallel/rank_context.h"
#include "runtime/checkpoint/manifest.h"
#include "runtime/config/config.h"
#include "runtime/config/validate.h"
#include "runtime/models/model.h"

namespace anabranch {

// How a configuration reads its data set, on one rank that does a whole step by itself.
// Throws Error (config, 78) if data.sources names a source that is not there.
LoaderOptions loader_options(const Config& config, const Dataset& dataset);

// Turns train.epochs into train.steps, and checks the rules again that speak of them; nothing if
// the run's length is not given in epochs. An epoch has as many samples as the sources that the
// run reads have together. Throws Error (config, 78), also if train.steps is set to something else.
void fill_steps(Config& config, const Dataset& dataset);

// Throws Error (data, 65) if checkpoint.words needs words that the data set does not know.
void check_words(const Config& config, const Loader& loader);

class RunData {
 public:
  // Opens the data set, checks it as data.verify says (each rank its part of the files), and makes
  // sure that all ranks see the same one. Collective. Throws Error (data, 65); Error (config, 78)
  // if masked steps are asked for and the last token of the vocabulary is not free for it.
  RunData(const Config& config, const BatchPlan& plan, Group& world, const RankContext& context);

  [[nodiscard]] int64_t vocabulary() const { return dataset_.tokenizer().vocab_size; }

  // Starts reading ahead at a global sample; before next().
  void start(int64_t first_sample);

  // This rank's next micro-batch.
  MicroBatch next();

  [[nodiscard]] double wait_seconds() const { return loader_ ? loader_->wait_seconds() : 0; }

  [[nodiscard]] size_t sources() const { return dataset_.sources().size(); }

  // Words of text in the samples before `sample`, see Loader; nothing if the data set has no count.
  [[nodiscard]] std::optional<int64_t> words_before(int64_t sample) const;

  // A source's name; empty if there is only one.
  [[nodiscard]] std::string source_name(size_t source) const;

  // Batches of a source's validation split, for evaluate(); empty if it has none.
  [[nodiscard]] std::function<bool(MicroBatch&)> validation(size_t source) const;

  // [V] bytes of each token's text.
  [[nodiscard]] std::span<const int32_t> token_bytes() const { return token_bytes_; }

  // What a position in the data depends on, to be kept with it.
  [[nodiscard]] const std::string& identity() const { return identity_; }

  // Throws Error (data, 65) if a checkpoint's position belongs to other data.
  void check_same(const Manifest& manifest) const;

 private:
  [[nodiscard]] MicroBatch placed(Batch batch) const;

  const Config& config_;
  Dataset dataset_;
  LoaderOptions options_;
  std::shared_ptr<Pool> pool_;
  std::unique_ptr<Loader> loader_;
  std::vector<int32_t> token_bytes_;
  std::string identity_;
};

}  // namespace anabranch
