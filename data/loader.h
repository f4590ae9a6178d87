// Batches for a rank: read ahead by a thread, in an order that one integer restores.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/base/trace.h"
#include "core/tensor/tensor.h"
#include "data/sampler.h"
#include "data/shard/dataset.h"
#include "data/shard/samples.h"

namespace anabranch {

struct Batch {
  Tensor inputs, targets;  // int32 [B, T]; a target of -1 counts for nothing
  // int32 [B, T], if asked for: where in its row the document of each input begins; 0 if that is
  // before the row. The last input of a document has the first token of the next as its target.
  Tensor document_starts;
  int64_t first_sample = 0;      // the first sample of the step, over all ranks
  int64_t target_tokens = 0;     // targets that are not -1
  std::vector<int64_t> samples;  // [B] global sample numbers
};

struct LoaderOptions {
  int64_t T = 0;              // context
  int64_t micro_batch = 0;    // B, sequences of one rank at a time
  int64_t micro_batches = 1;  // of one rank in a step
  int rank = 0, ranks = 1;
  uint64_t seed = 0;  // of the order
  Packing packing = Packing::kWindows;
  bool with_document_starts = false;  // whether batches have them
  int64_t start_sample = 0;           // where to begin: what position() gave
  int prefetch = 4;                   // micro-batches read ahead
  std::vector<double> weights = {};   // of the sources; empty: as the data set says
  Trace* trace = nullptr;             // waiting and reading as spans
};

// A step of S = micro_batches * ranks * B samples from global sample s0 on: row b of micro-batch j
// on rank r is sample s0 + (j * ranks + r) * B + b. So the step has the same samples for any number
// of ranks, and they follow from the sample numbers alone.
class Loader {
 public:
  // Starts reading. `dataset` must outlive this. Throws data_error (see Samples) or config_error.
  Loader(const Dataset& dataset, LoaderOptions options);
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // The next micro-batch of this rank. Throws what reading it met: data_error that names file,
  // token and sample (an id that is not in the vocabulary, a file that became shorter), io_error.
  Batch next();

  // The first sample of the step that `next` serves from; give it as start_sample to go on there.
  [[nodiscard]] int64_t position() const { return first_of(served_); }

  // Seconds that `next` has waited for the thread since the start.
  [[nodiscard]] double wait_seconds() const { return wait_seconds_; }

  [[nodiscard]] int64_t samples_per_step() const;

  // Training samples of all sources together, but for those whose weight leaves them out.
  [[nodiscard]] int64_t samples_per_epoch() const;

  // Whether the data set says how many words each source has that is read.
  [[nodiscard]] bool knows_words() const;

  // Words of text in the samples before global sample `sample`: of every source as many as its
  // share of an epoch, k of n samples stand for k / n of the words of its training split. So an
  // epoch sees each word once, and words seen again count again. Needs knows_words().
  [[nodiscard]] int64_t words_before(int64_t sample) const;

  [[nodiscard]] const Sampler& sampler() const { return sampler_; }

  // What position() depends on besides itself: data, packing, context, seed, weights. A position
  // means the same samples only if these are equal.
  [[nodiscard]] std::string identity() const;

 private:
  void read_ahead();
  [[nodiscard]] Batch read(int64_t number) const;
  [[nodiscard]] bool reads(size_t source) const;
  // Reads sample `sample` into row `b`.
  void read_sample(int64_t sample, int64_t b, Batch& batch) const;
  [[nodiscard]] int64_t first_of(int64_t number) const;

  const Dataset& dataset_;
  LoaderOptions options_;
  std::vector<Samples> samples_;
  Sampler sampler_;
  int64_t served_ = 0;  // micro-batches that `next` gave
  double wait_seconds_ = 0;

  std::mutex lock_;
  std::condition_variable more_, room_;
  std::deque<Batch> ready_;
  std::exception_ptr failure_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace anabranch
