// How fast text becomes tokens, and tokens become batches.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/loader.h"
#include "data/tokenizer/tokenizer.h"

namespace anabranch {

struct EncodeBench {
  int64_t bytes = 0, tokens = 0;
  size_t pieces = 0;
  int threads = 1;
  std::vector<double> seconds;  // of each round: every thread encodes the whole text

  // Of one thread, in the median round.
  [[nodiscard]] double mib_per_second() const;
};

// Encodes `text` on each of `threads` threads at once, with an encoder of its own that is new in
// the first round and then kept.
//
//   piece   bytes of a piece at least, which ends with a line; 0: the whole text is one piece
//   rounds  at least 1
EncodeBench bench_encode(const Tokenizer& tokenizer, const std::string& text, size_t piece,
                         int threads, int rounds);

struct VocabularyBench {
  int64_t bytes = 0;
  size_t entries = 0;
  unsigned threads = 0;
  double seconds = 0;
};

// Learns a vocabulary of `entries` from the lines of a file, cut by GPT-2's pattern, with one
// special token; reading is part of the time.
// Throws Error (data, 65) if there is no such file or its text is too short.
VocabularyBench bench_vocabulary(const std::string& path, size_t entries, unsigned threads);

struct LoaderBench {
  double start_seconds = 0;     // from nothing to the first batch
  std::vector<double> seconds;  // a batch, in each of the rounds
  int64_t tokens_per_batch = 0;
};

// Opens a data set and reads micro-batches, after those that were read ahead at first. Nothing
// trains beside it, so a batch takes what the loader's thread needs for it.
//
//   options  what a rank trains with
//   batches  of a round: many, since one may have to wait for two and the next for none
LoaderBench bench_loader(const std::string& folder, const LoaderOptions& options, int64_t batches,
                         int rounds);

}  // namespace anabranch
