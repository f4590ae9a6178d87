// The tokens of several files as one sequence.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/shard/shard.h"

namespace anabranch {

class TokenStream {
 public:
  TokenStream() = default;
  explicit TokenStream(std::vector<ShardReader> shards);

  [[nodiscard]] int64_t tokens() const { return begins_.back(); }

  [[nodiscard]] const std::vector<ShardReader>& shards() const { return shards_; }

  // `count` tokens from token `first` on, across files.
  void read(int64_t first, int64_t count, int32_t* to) const;

  // "file, token n" of a position, for messages.
  [[nodiscard]] std::string where(int64_t position) const;

  // Where each document begins in the sequence, and its end last. Throws data_error if a file does
  // not say.
  [[nodiscard]] std::vector<uint64_t> document_offsets() const;

 private:
  [[nodiscard]] size_t shard_of(int64_t position) const;

  std::vector<ShardReader> shards_;
  std::vector<int64_t> begins_ = {0};  // [shards + 1]
};

// Where the document of each of `count` tokens from token `first` on begins, counted from `first`
// and not below 0, plus `base`.
//
//   document_offsets  [documents + 1], as of a TokenStream
//   to                [count]
void starts_of_documents(std::span<const uint64_t> document_offsets, int64_t first, int64_t count,
                         int32_t base, int32_t* to);

}  // namespace anabranch
