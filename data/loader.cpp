#include "data/loader.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/base/error.h"
#include "data/quiet_thread.h"

namespace anabranch {
namespace {

std::vector<Samples> cut(const Dataset& dataset, const LoaderOptions& options) {
  std::vector<Samples> all;
  for (const DataSource& source : dataset.sources()) {
    all.emplace_back(source, options.packing, options.T, options.with_document_starts);
  }
  return all;
}

// What a source weighs: the run's word, the data set's, or its number of samples.
Sampler make_sampler(const Dataset& dataset, const std::vector<Samples>& samples,
                     const LoaderOptions& options) {
  std::vector<double> weights = options.weights;
  if (weights.empty()) {
    for (const DataSource& source : dataset.sources()) weights.push_back(source.weight);
  }
  if (weights.size() != samples.size()) {
    throw config_error(weights.size(), " weights are given; the data set has ", samples.size(),
                       " sources");
  }
  std::vector<int64_t> counts;
  counts.reserve(samples.size());
  for (const Samples& of : samples) counts.push_back(of.count());
  return {std::move(counts), weights, options.seed};
}

}  // namespace

Loader::Loader(const Dataset& dataset, LoaderOptions options)
    : dataset_(dataset),
      options_(std::move(options)),
      samples_(cut(dataset_, options_)),
      sampler_(make_sampler(dataset_, samples_, options_)) {
  AB_CHECK(options_.micro_batch >= 1 && options_.micro_batches >= 1 && options_.prefetch >= 1,
           options_.micro_batches, " micro-batches of ", options_.micro_batch, ", ",
           options_.prefetch, " ahead");
  AB_CHECK(options_.rank >= 0 && options_.rank < options_.ranks, "rank ", options_.rank, " of ",
           options_.ranks);
  AB_CHECK(options_.start_sample >= 0, "position ", options_.start_sample);
  thread_ = quiet_thread([this] { read_ahead(); });
}

Loader::~Loader() {
  {
    const std::lock_guard hold(lock_);
    stop_ = true;
  }
  room_.notify_all();
  thread_.join();
}

int64_t Loader::samples_per_step() const {
  return options_.micro_batches * options_.ranks * options_.micro_batch;
}

int64_t Loader::samples_per_epoch() const {
  int64_t sum = 0;
  for (size_t s = 0; s < samples_.size(); ++s) sum += reads(s) ? samples_[s].count() : 0;
  return sum;
}

bool Loader::reads(size_t source) const { return sampler_.share(static_cast<int>(source)) > 0; }

bool Loader::knows_words() const {
  for (size_t s = 0; s < samples_.size(); ++s) {
    if (reads(s) && dataset_.sources()[s].train_words < 0) return false;
  }
  return true;
}

int64_t Loader::words_before(int64_t sample) const {
  AB_CHECK(knows_words(), "words of a data set that does not know them");
  int64_t words = 0;
  for (size_t s = 0; s < samples_.size(); ++s) {
    if (!reads(s)) continue;
    const int64_t all = dataset_.sources()[s].train_words, n = samples_[s].count();
    const int64_t taken = sampler_.taken(static_cast<int>(s), sample);
    // Exact below 2^53, and it never falls: both operations are rounded correctly.
    const double rest = static_cast<double>(taken % n) * static_cast<double>(all);
    words += taken / n * all + static_cast<int64_t>(rest / static_cast<double>(n));
  }
  return words;
}

int64_t Loader::first_of(int64_t number) const {
  return options_.start_sample + number / options_.micro_batches * samples_per_step();
}

std::string Loader::identity() const {
  std::string weights;
  for (size_t s = 0; s < samples_.size(); ++s) {
    weights += join(s == 0 ? "" : ",",
                    options_.weights.empty() ? dataset_.sources()[s].weight : options_.weights[s]);
  }
  return join("data ", dataset_.fingerprint(), ", packing ",
              options_.packing == Packing::kWindows ? "windows" : "best_fit", ", context ",
              options_.T, ", seed ", options_.seed, ", weights ", weights);
}

Batch Loader::next() {
  const auto begun = std::chrono::steady_clock::now();
  const Span span(options_.trace, Lane::kCompute, "data wait");
  std::unique_lock hold(lock_);
  more_.wait(hold, [&] { return !ready_.empty() || failure_ != nullptr; });
  wait_seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  if (ready_.empty()) std::rethrow_exception(failure_);
  Batch batch = std::move(ready_.front());
  ready_.pop_front();
  ++served_;
  hold.unlock();
  room_.notify_one();
  return batch;
}

void Loader::read_ahead() {
  try {
    for (int64_t number = 0;; ++number) {
      Batch batch = read(number);
      std::unique_lock hold(lock_);
      room_.wait(hold, [&] { return stop_ || std::ssize(ready_) < options_.prefetch; });
      if (stop_) return;
      ready_.push_back(std::move(batch));
      more_.notify_one();
    }
  } catch (...) {
    const std::lock_guard hold(lock_);
    failure_ = std::current_exception();
    more_.notify_one();
  }
}

Batch Loader::read(int64_t number) const {
  const Span span(options_.trace, Lane::kData, "read batch");
  const int64_t B = options_.micro_batch, T = options_.T;
  Batch batch;
  batch.inputs = Tensor({B, T}, DType::kI32, nullptr, "data");
  batch.targets = Tensor({B, T}, DType::kI32, nullptr, "data");
  if (options_.with_document_starts) {
    batch.document_starts = Tensor({B, T}, DType::kI32, nullptr, "data");
  }
  batch.first_sample = first_of(number);
  batch.target_tokens = B * T;
  const int64_t j = number % options_.micro_batches;
  for (int64_t b = 0; b < B; ++b) {
    const int64_t sample = batch.first_sample + (j * options_.ranks + options_.rank) * B + b;
    batch.samples.push_back(sample);
    read_sample(sample, b, batch);
  }
  return batch;
}

void Loader::read_sample(int64_t sample, int64_t b, Batch& batch) const {
  const int64_t T = options_.T, vocab_size = dataset_.tokenizer().vocab_size;
  const Sampler::Place place = sampler_.at(sample);
  const Samples& from = samples_[static_cast<size_t>(place.source)];
  std::vector<int32_t> tokens(static_cast<size_t>(T + 1));
  from.read(place.position, tokens.data());
  for (int64_t i = 0; i <= T; ++i) {
    const int32_t id = tokens[static_cast<size_t>(i)];
    if (id >= 0 && (vocab_size == 0 || id < vocab_size)) continue;
    throw data_error(from.where(place.position, i), ", which is in sample ", sample, ", is ", id,
                     "; the vocabulary has ", vocab_size, " entries: the file is damaged or was ",
                     "made with another tokenizer");
  }
  std::copy_n(tokens.data(), T, batch.inputs.data<int32_t>() + b * T);
  std::copy_n(tokens.data() + 1, T, batch.targets.data<int32_t>() + b * T);
  if (batch.document_starts.empty()) return;
  from.document_starts(place.position, batch.document_starts.data<int32_t>() + b * T);
}

}  // namespace anabranch
