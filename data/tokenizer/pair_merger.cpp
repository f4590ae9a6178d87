#include "data/tokenizer/pair_merger.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "core/base/error.h"
#include "data/tokenizer/byte_alphabet.h"

namespace anabranch {
namespace {

constexpr std::uint32_t kFree = std::numeric_limits<std::uint32_t>::max();

std::uint64_t key_of(TokenId left, TokenId right) { return (std::uint64_t{left} << 32U) | right; }

TokenId left_of(std::uint64_t key) { return static_cast<TokenId>(key >> 32U); }

TokenId right_of(std::uint64_t key) { return static_cast<TokenId>(key); }

std::size_t hash_of(std::uint64_t key) {
  key *= 0x9E3779B97F4A7C15U;
  return key ^ (key >> 32U);
}

std::array<TokenId, 256> byte_ranks() {
  std::array<TokenId, 256> ranks{};
  for (TokenId rank = 0; rank < 256; ++rank) ranks[alphabet_order()[rank]] = rank;
  return ranks;
}

}  // namespace

PairMerger::PairMerger(const PieceCounter& pieces)
    : table_(std::size_t{1} << 16U, kFree), byte_ranks_(byte_ranks()) {
  words_.reserve(pieces.size());
  pieces.for_each([this](std::string_view piece, std::uint64_t count) { add_word(piece, count); });
  for (std::uint32_t pair = 0; pair < pairs_.size(); ++pair) push(pair);
}

void PairMerger::add_word(std::string_view piece, std::uint64_t count) {
  if (piece.size() < 2) return;
  AB_CHECK(words_.size() < kFree, "more than ", kFree, " different pieces");
  const auto word = static_cast<std::uint32_t>(words_.size());
  const auto times = static_cast<std::int64_t>(count);
  words_.push_back({symbols_.size(), piece.size(), times});
  for (const char c : piece) symbols_.push_back(static_cast<std::uint8_t>(c));
  const TokenId* symbols = symbols_.data() + words_.back().begin;
  for (std::size_t i = 0; i + 1 < piece.size(); ++i) {
    Pair& pair = pairs_[pair_index(symbols[i], symbols[i + 1])];
    pair.count += times;
    if (pair.words.empty() || pair.words.back() != word) pair.words.push_back(word);
  }
}

std::uint32_t PairMerger::pair_index(TokenId left, TokenId right) {
  const std::uint64_t key = key_of(left, right);
  const std::size_t mask = table_.size() - 1;
  std::size_t i = hash_of(key) & mask;
  for (; table_[i] != kFree; i = (i + 1) & mask) {
    if (pairs_[table_[i]].key == key) return table_[i];
  }
  AB_CHECK(pairs_.size() < kFree, "more than ", kFree, " different pairs");
  const auto pair = static_cast<std::uint32_t>(pairs_.size());
  table_[i] = pair;
  pairs_.push_back({key, 0, {}});
  if (2 * pairs_.size() > table_.size()) grow();
  return pair;
}

void PairMerger::grow() {
  table_.assign(2 * table_.size(), kFree);
  const std::size_t mask = table_.size() - 1;
  for (std::uint32_t pair = 0; pair < pairs_.size(); ++pair) {
    std::size_t i = hash_of(pairs_[pair].key) & mask;
    while (table_[i] != kFree) i = (i + 1) & mask;
    table_[i] = pair;
  }
}

void PairMerger::push(std::uint32_t pair) {
  const auto rank = [this](TokenId id) { return id < 256 ? byte_ranks_[id] : id; };
  const Pair& p = pairs_[pair];
  heap_.push_back({p.count, key_of(rank(left_of(p.key)), rank(right_of(p.key))), pair});
  std::push_heap(heap_.begin(), heap_.end());
}

void PairMerger::change(TokenId left, TokenId right, std::int64_t by) {
  pairs_[pair_index(left, right)].count += by;
}

void PairMerger::gain(TokenId left, TokenId right, std::uint32_t word) {
  const std::uint32_t index = pair_index(left, right);
  Pair& pair = pairs_[index];
  if (pair.words.empty()) gained_.push_back(index);
  if (pair.words.empty() || pair.words.back() != word) pair.words.push_back(word);
  pair.count += words_[word].count;
}

// Joins the pair wherever it stands in the word, from the left, and keeps all counts right.
void PairMerger::merge_word(std::uint32_t index, TokenPair merge, TokenId merged) {
  Word& word = words_[index];
  TokenId* symbols = symbols_.data() + word.begin;
  std::size_t kept = 0;
  for (std::size_t i = 0; i < word.size; ++i) {
    const bool found =
        symbols[i] == merge.left && i + 1 < word.size && symbols[i + 1] == merge.right;
    if (!found) {
      symbols[kept++] = symbols[i];
      continue;
    }
    if (kept != 0) {
      change(symbols[kept - 1], merge.left, -word.count);
      gain(symbols[kept - 1], merged, index);
    }
    if (i + 2 < word.size) {
      change(merge.right, symbols[i + 2], -word.count);
      gain(merged, symbols[i + 2], index);
    }
    symbols[kept++] = merged;
    ++i;
  }
  word.size = kept;
}

std::optional<TokenPair> PairMerger::next(std::uint64_t min_count) {
  const auto least = static_cast<std::int64_t>(std::max<std::uint64_t>(min_count, 1));
  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end());
    const Candidate top = heap_.back();
    heap_.pop_back();
    const Pair& pair = pairs_[top.pair];
    if (top.count != pair.count) {
      // Counts only fall after a pair is put in, so that it comes up again in its turn.
      if (pair.count >= least) push(top.pair);
      continue;
    }
    if (top.count < least) return std::nullopt;
    const TokenPair merge{left_of(pair.key), right_of(pair.key)};
    const std::vector<std::uint32_t> words = std::exchange(pairs_[top.pair].words, {});
    gained_.clear();
    for (const std::uint32_t word : words) merge_word(word, merge, next_id_);
    pairs_[top.pair].count = 0;
    for (const std::uint32_t gained : gained_) push(gained);
    ++next_id_;
    return merge;
  }
  return std::nullopt;
}

}  // namespace anabranch
