// The merging loop of byte-pair training.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "data/tokenizer/bpe.h"
#include "data/tokenizer/piece_counter.h"

namespace anabranch {

// Finds merges one by one: each time the pair of neighbouring tokens with the highest count over
// all pieces, which it then joins everywhere.
//
// Counts are exact. Among equal counts the pair with the smaller left, then the smaller right token
// goes first, where single bytes compare in the order of alphabet_order() and come before merged
// tokens, which compare by age: Hugging Face's rule. Ids 0-255 are the bytes, 256 and up the merged
// tokens by age.
class PairMerger {
 public:
  explicit PairMerger(const PieceCounter& pieces);

  // The next merge, done; nothing if no pair is left that occurs at least `min_count` times.
  std::optional<TokenPair> next(std::uint64_t min_count);

 private:
  struct Word {
    std::size_t begin;  // in symbols_
    std::size_t size;
    std::int64_t count;
  };

  struct Pair {
    std::uint64_t key;
    std::int64_t count;
    std::vector<std::uint32_t> words;  // where it occurs or once occurred; repeats allowed
  };

  // A pair with a count that was right when it was put in; the order is that of the merges.
  struct Candidate {
    std::int64_t count;
    std::uint64_t order;
    std::uint32_t pair;

    bool operator<(const Candidate& other) const {
      return count != other.count ? count < other.count : order > other.order;
    }
  };

  void add_word(std::string_view piece, std::uint64_t count);
  std::uint32_t pair_index(TokenId left, TokenId right);
  void grow();
  void change(TokenId left, TokenId right, std::int64_t by);
  void gain(TokenId left, TokenId right, std::uint32_t word);
  void push(std::uint32_t pair);
  void merge_word(std::uint32_t index, TokenPair merge, TokenId merged);

  std::vector<TokenId> symbols_;
  std::vector<Word> words_;
  std::vector<Pair> pairs_;
  std::vector<std::uint32_t> table_;  // places in pairs_, by hash
  std::vector<Candidate> heap_;
  std::vector<std::uint32_t> gained_;    // pairs whose count rose during this merge
  std::array<TokenId, 256> byte_ranks_;  // places of the bytes in alphabet_order()
  TokenId next_id_ = 256;
};

}  // namespace anabranch
