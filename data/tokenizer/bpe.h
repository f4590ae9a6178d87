// Byte-pair merging of one piece of text.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace anabranch {

using TokenId = std::uint32_t;

// Two neighbours that may become one token.
struct TokenPair {
  TokenId left;
  TokenId right;
};

// What a tokenizer is made of, whatever file it came from.
struct Vocabulary {
  std::vector<std::string> tokens;  // bytes by id; for a special token, its text
  std::vector<TokenPair> merges;    // earliest first; the merged token's bytes are the two joined
  std::vector<TokenId> specials;    // ids that no text ever gives, ascending
  bool ignore_merges = false;       // a piece that is a token is taken whole even if no merges lead
                                    // there
};

// Merges the bytes of a piece into tokens: a piece that is a token is that token; else the
// neighbours whose merge comes first are joined, leftmost first, until no merge applies.
//
// Immutable and shared by threads; the tables are flat, with open addressing. The time for a piece
// of n bytes is O(n log n) at worst.
class Bpe {
 public:
  // Work space of one thread.
  struct Scratch {
    std::vector<std::uint64_t> heap;
    std::vector<TokenId> ids;
    std::vector<std::uint32_t> ranks;
    std::vector<std::uint32_t> next;
    std::vector<std::uint32_t> previous;
  };

  // Throws data_error, beginning with `source`, if a byte has no token of its own, two tokens are
  // the same bytes, or a merge is given twice, names no token or leads to none.
  Bpe(const Vocabulary& vocabulary, const std::string& source);

  // Appends the tokens of `piece`, which is not empty.
  void encode(std::string_view piece, Scratch& scratch, std::vector<TokenId>& out) const;

 private:
  struct TokenSlot {
    std::uint32_t tag;
    TokenId id;
  };

  struct PairSlot {
    std::uint64_t key;
    std::uint32_t rank;
    TokenId merged;
  };

  [[nodiscard]] std::string_view bytes(TokenId id) const {
    return std::string_view(blob_).substr(offsets_[id], offsets_[id + 1] - offsets_[id]);
  }

  void add_tokens(const Vocabulary& vocabulary, const std::string& source);
  void add_merges(const Vocabulary& vocabulary, const std::string& source);
  void drop_unreachable_tokens();
  void insert(TokenId id);
  [[nodiscard]] TokenId find_token(std::string_view piece) const;
  [[nodiscard]] const PairSlot& find_pair(TokenId left, TokenId right) const;
  void merge(std::string_view piece, Scratch& scratch, std::vector<TokenId>& out) const;
  void merge_short(std::string_view piece, std::vector<TokenId>& out) const;
  void merge_long(std::string_view piece, Scratch& scratch, std::vector<TokenId>& out) const;

  std::string blob_;  // the tokens' bytes, joined
  std::vector<std::uint32_t> offsets_;
  std::vector<TokenSlot> tokens_;  // whole pieces
  std::vector<PairSlot> pairs_;    // merges
  std::array<TokenId, 256> byte_ids_{};
};

}  // namespace anabranch
