#include "data/tokenizer/encoder.h"

#include <algorithm>
#include <utility>

namespace anabranch {
namespace {

// 512 KiB of 32-byte lines: larger tables leave the second-level cache.
constexpr unsigned kLineBits = 14;

// Ids collected before they move to the caller's vector.
constexpr std::size_t kBatch = 4096;

}  // namespace

Encoder::Encoder(std::shared_ptr<const Bpe> bpe, Splitter splitter)
    : bpe_(std::move(bpe)),
      splitter_(std::move(splitter)),
      lines_(std::size_t{1} << kLineBits, Line{{0, 0}, 0, {}}) {}

void Encoder::encode(std::string_view text, std::vector<TokenId>& out) {
  pending_.clear();
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = splitter_.piece_end(text, begin);
    encode_piece(text, begin, end - begin);
    if (pending_.size() >= kBatch) {
      out.insert(out.end(), pending_.begin(), pending_.end());
      pending_.clear();
    }
    begin = end;
  }
  out.insert(out.end(), pending_.begin(), pending_.end());
}

inline void Encoder::encode_piece(std::string_view text, std::size_t begin, std::size_t size) {
  if (size > kMaxKeyBytes) {
    bpe_->encode(text.substr(begin, size), scratch_, pending_);
    return;
  }
  const PieceKey key = piece_key(text, begin, size);
  Line& line = lines_[hash_key(key) >> (64 - kLineBits)];
  if (line.key == key) {
    pending_.insert(pending_.end(), line.ids, line.ids + line.count);
    return;
  }
  const std::size_t before = pending_.size();
  bpe_->encode(text.substr(begin, size), scratch_, pending_);
  const std::size_t count = pending_.size() - before;
  if (count > kKept) return;
  line.key = key;
  line.count = static_cast<std::uint32_t>(count);
  std::copy_n(pending_.data() + before, count, line.ids);
}

}  // namespace anabranch
