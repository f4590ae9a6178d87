// Training of a byte-level byte-pair vocabulary.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/tokenizer/bpe.h"
#include "data/tokenizer/split.h"

namespace anabranch {

// How far training is: first all text is counted, then merges are found.
struct TrainProgress {
  std::uint64_t documents = 0;
  std::uint64_t bytes = 0;
  std::size_t merges = 0;      // 0 while text is counted
  std::size_t all_merges = 0;  // how many there will be
};

struct TrainOptions {
  std::size_t vocab_size = 32768;  // 256 bytes, the merges, and the special tokens
  SplitPattern pattern = SplitPattern::kGpt4;
  std::vector<std::string> specials = {"<|bos|>"};  // the last ids, in this order
  std::uint64_t document_characters = 0;  // documents are cut to so many; 0 leaves them whole
  std::uint64_t total_characters = 0;     // where counting stops, within a document; 0: never
  std::uint64_t min_count = 1;            // pairs rarer than this are never merged
  unsigned threads = 0;                   // for counting; 0: one for each processor
  std::function<void(const TrainProgress&)> progress;  // called now and then, may be empty
};

// Puts the next document into its argument; false when there is none.
using NextDocument = std::function<bool(std::string&)>;

// Learns a vocabulary: ids 0-255 are the bytes in order, then the merged tokens by age, then the
// special tokens.
//
//   options  see there
//   next     gives the documents; it and the progress call run on any of the threads, never two at
//            once
//
// Counts are exact, ties are broken by a fixed rule (see PairMerger), and the result does not
// depend on the number of threads. Pieces never reach across documents. Characters are UTF-8 code
// points, or single bytes where the text is not UTF-8.
// Throws config_error for a vocabulary size without room for bytes and special tokens or for
// special tokens that are empty, repeated or not UTF-8; data_error if the text runs out of pairs
// before the vocabulary is full; and what `next` throws.
Vocabulary train_bpe(const TrainOptions& options, const NextDocument& next);

}  // namespace anabranch
