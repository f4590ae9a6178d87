// Text to token ids at full speed: one object per thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "data/tokenizer/bpe.h"
#include "data/tokenizer/piece_key.h"
#include "data/tokenizer/split.h"

namespace anabranch {

// Encodes text with a tokenizer's vocabulary, which it shares.
//
// Keeps the tokens of short pieces it has met in a table of fixed size, where a piece has one place
// and the newest wins: the ids do not depend on what came before. Not for two threads at once.
class Encoder {
 public:
  Encoder(std::shared_ptr<const Bpe> bpe, Splitter splitter);

  // Appends the ids of `text` as ordinary text: no special token, whatever the text says. Bytes
  // that are not UTF-8 are encoded as bytes.
  void encode(std::string_view text, std::vector<TokenId>& out);

 private:
  static constexpr std::size_t kKept = 3;  // tokens of a piece that a line holds

  struct Line {
    PieceKey key;
    std::uint32_t count;
    TokenId ids[kKept];
  };

  void encode_piece(std::string_view text, std::size_t begin, std::size_t size);

  std::shared_ptr<const Bpe> bpe_;
  Splitter splitter_;
  std::vector<Line> lines_;
  std::vector<TokenId> pending_;
  Bpe::Scratch scratch_;
};

}  // namespace anabranch
