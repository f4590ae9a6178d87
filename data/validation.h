// The validation split of a source in order, so that every token is predicted once.
#pragma once

#include <cstdint>

#include "data/loader.h"

namespace anabranch {

struct ValidationOptions {
  int64_t T = 0;            // context
  int64_t micro_batch = 0;  // B, sequences of one rank at a time
  int rank = 0, ranks = 1;
  int64_t max_tokens = 0;             // of all ranks, rounded down to whole windows but one; 0: all
  bool with_document_starts = false;  // whether batches have them
  int64_t stride = 0;                 // from one window to the next, 1 to T; 0: T
};

// Windows of T tokens, each `stride` after the one before, shared out over ranks. The first
// predicts all its targets, any other those that the one before did not reach, so that every token
// is predicted once, given T - stride tokens at least where there are as many; all else has targets
// of -1. Every rank has the same number of batches. The targets and their number are the same for
// any number of ranks.
class Validation {
 public:
  // `source` must outlive this. Throws data_error if it has no validation tokens, or is asked for
  // documents that it does not know.
  Validation(const DataSource& source, int64_t vocab_size, ValidationOptions options);

  // Batches of one rank.
  [[nodiscard]] int64_t batches() const { return batches_; }

  // Targets of all ranks together.
  [[nodiscard]] int64_t target_tokens() const { return targets_; }

  // Batch `i` of this rank; its sample numbers are window numbers. Throws data_error as Loader.
  [[nodiscard]] Batch at(int64_t i) const;

 private:
  const DataSource& source_;
  int64_t vocab_size_;
  ValidationOptions options_;
  int64_t stride_ = 0;
  std::vector<uint64_t> documents_;  // offsets, if asked for
  int64_t windows_ = 0, batches_ = 0, targets_ = 0;
};

}  // namespace anabranch
