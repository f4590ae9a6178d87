#include "data/tokenizer/bpe.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "core/base/error.h"
#include "core/base/quote.h"
#include "data/tokenizer/byte_alphabet.h"
#include "data/tokenizer/piece_key.h"

namespace anabranch {
namespace {

constexpr TokenId kNone = std::numeric_limits<TokenId>::max();
constexpr std::uint32_t kNever = std::numeric_limits<std::uint32_t>::max();
constexpr std::uint64_t kEmptyKey = std::numeric_limits<std::uint64_t>::max();

// Above this length the scan for the first merge, linear each time, loses to the heap.
constexpr std::size_t kShortPiece = 64;

// Room for n entries at a load of at most a half, and never full.
std::size_t table_size(std::size_t n) { return std::bit_ceil(2 * n + 2); }

std::uint64_t pair_key(TokenId left, TokenId right) { return (std::uint64_t{left} << 32U) | right; }

std::size_t pair_hash(std::uint64_t key) {
  key *= 0x9E3779B97F4A7C15U;
  return key ^ (key >> 32U);
}

std::uint32_t tag_of(std::uint64_t hash) { return static_cast<std::uint32_t>(hash >> 32U); }

std::size_t byte_of(char c) { return static_cast<std::uint8_t>(c); }

}  // namespace

Bpe::Bpe(const Vocabulary& vocabulary, const std::string& source) {
  add_tokens(vocabulary, source);
  add_merges(vocabulary, source);
  if (!vocabulary.ignore_merges) drop_unreachable_tokens();
}

void Bpe::add_tokens(const Vocabulary& vocabulary, const std::string& source) {
  const std::vector<std::string>& tokens = vocabulary.tokens;
  std::size_t total = 0;
  for (const std::string& token : tokens) total += token.size();
  if (total >= kNever || tokens.size() >= kNever) throw data_error(source, ": too many tokens");
  blob_.reserve(total);
  offsets_.push_back(0);
  for (const std::string& token : tokens) {
    blob_ += token;
    offsets_.push_back(static_cast<std::uint32_t>(blob_.size()));
  }
  tokens_.assign(table_size(tokens.size()), {0, kNone});
  byte_ids_.fill(kNone);
  for (TokenId id = 0; id < tokens.size(); ++id) {
    if (std::binary_search(vocabulary.specials.begin(), vocabulary.specials.end(), id)) continue;
    if (tokens[id].empty()) throw data_error(source, ": token ", id, " is empty");
    if (const TokenId other = find_token(tokens[id]); other != kNone) {
      throw data_error(source, ": tokens ", other, " and ", id, " are both '",
                       spell_bytes(tokens[id]), "'");
    }
    insert(id);
    if (tokens[id].size() == 1) byte_ids_[byte_of(tokens[id][0])] = id;
  }
  for (std::size_t byte = 0; byte < 256; ++byte) {
    if (byte_ids_[byte] == kNone) {
      throw data_error(source, ": byte ", byte, " ('",
                       spell_bytes(std::string(1, static_cast<char>(byte))),
                       "' in the vocabulary) has no token of its own that is not special; a ",
                       "byte-level vocabulary needs all 256");
    }
  }
}

void Bpe::add_merges(const Vocabulary& vocabulary, const std::string& source) {
  pairs_.assign(table_size(vocabulary.merges.size()), {kEmptyKey, kNever, kNone});
  std::uint32_t rank = 0;
  for (const auto [left, right] : vocabulary.merges) {
    const auto fail = [&](const auto&... what) {
      throw data_error(source, ": merge ", rank, " (counted from 0) ", what...);
    };
    for (const TokenId id : {left, right}) {
      if (id >= vocabulary.tokens.size()) fail("names token ", id, ", which does not exist");
      if (find_token(bytes(id)) != id) fail("uses the special token ", id);
    }
    const std::string joined = std::string(bytes(left)).append(bytes(right));
    const TokenId merged = find_token(joined);
    if (merged == kNone) {
      fail("leads to ", quote(spell_bytes(joined)), ", which is no token for text");
    }
    const std::uint64_t key = pair_key(left, right);
    std::size_t i = pair_hash(key) & (pairs_.size() - 1);
    for (; pairs_[i].key != kEmptyKey; i = (i + 1) & (pairs_.size() - 1)) {
      if (pairs_[i].key == key) fail("repeats merge ", pairs_[i].rank);
    }
    pairs_[i] = {key, rank++, merged};
  }
}

// Leaves only tokens that merging arrives at, so that looking a piece up first changes nothing.
void Bpe::drop_unreachable_tokens() {
  std::vector<TokenId> keep;
  std::vector<TokenId> out;
  Scratch scratch;
  for (const TokenSlot& slot : tokens_) {
    if (slot.id == kNone) continue;
    out.clear();
    merge(bytes(slot.id), scratch, out);
    if (out.size() == 1) keep.push_back(slot.id);
  }
  std::fill(tokens_.begin(), tokens_.end(), TokenSlot{0, kNone});
  std::sort(keep.begin(), keep.end());
  for (const TokenId id : keep) insert(id);
}

void Bpe::insert(TokenId id) {
  const std::uint64_t hash = hash_bytes(bytes(id));
  std::size_t i = hash & (tokens_.size() - 1);
  while (tokens_[i].id != kNone) i = (i + 1) & (tokens_.size() - 1);
  tokens_[i] = {tag_of(hash), id};
}

TokenId Bpe::find_token(std::string_view piece) const {
  const std::uint64_t hash = hash_bytes(piece);
  std::size_t i = hash & (tokens_.size() - 1);
  for (; tokens_[i].id != kNone; i = (i + 1) & (tokens_.size() - 1)) {
    if (tokens_[i].tag == tag_of(hash) && bytes(tokens_[i].id) == piece) break;
  }
  return tokens_[i].id;
}

// The pair's slot, or an empty one, whose rank is kNever.
const Bpe::PairSlot& Bpe::find_pair(TokenId left, TokenId right) const {
  const std::uint64_t key = pair_key(left, right);
  std::size_t i = pair_hash(key) & (pairs_.size() - 1);
  while (pairs_[i].key != key && pairs_[i].key != kEmptyKey) i = (i + 1) & (pairs_.size() - 1);
  return pairs_[i];
}

void Bpe::encode(std::string_view piece, Scratch& scratch, std::vector<TokenId>& out) const {
  const TokenId whole = find_token(piece);
  if (whole != kNone) {
    out.push_back(whole);
  } else {
    merge(piece, scratch, out);
  }
}

void Bpe::merge(std::string_view piece, Scratch& scratch, std::vector<TokenId>& out) const {
  if (piece.size() <= kShortPiece) {
    merge_short(piece, out);
  } else {
    merge_long(piece, scratch, out);
  }
}

void Bpe::merge_short(std::string_view piece, std::vector<TokenId>& out) const {
  std::array<TokenId, kShortPiece> ids;
  std::array<std::uint32_t, kShortPiece> ranks;  // of the pair that starts here
  std::size_t n = piece.size();
  for (std::size_t i = 0; i < n; ++i) ids[i] = byte_ids_[byte_of(piece[i])];
  for (std::size_t i = 0; i + 1 < n; ++i) ranks[i] = find_pair(ids[i], ids[i + 1]).rank;
  while (n > 1) {
    const auto* first = std::min_element(ranks.data(), ranks.data() + n - 1);
    if (*first == kNever) break;
    const auto i = static_cast<std::size_t>(first - ranks.data());
    ids[i] = find_pair(ids[i], ids[i + 1]).merged;
    std::copy(ids.data() + i + 2, ids.data() + n, ids.data() + i + 1);
    if (i + 2 < n) std::copy(ranks.data() + i + 2, ranks.data() + n - 1, ranks.data() + i + 1);
    --n;
    if (i + 1 < n) ranks[i] = find_pair(ids[i], ids[i + 1]).rank;
    if (i > 0) ranks[i - 1] = find_pair(ids[i - 1], ids[i]).rank;
  }
  out.insert(out.end(), ids.data(), ids.data() + n);
}

// A heap of (rank, place) over a linked list; entries that no longer hold are skipped when met.
void Bpe::merge_long(std::string_view piece, Scratch& s, std::vector<TokenId>& out) const {
  AB_CHECK(piece.size() < kNever, "a piece of ", piece.size(), " bytes is too long to merge");
  const auto n = static_cast<std::uint32_t>(piece.size());
  s.heap.clear();
  s.ids.resize(n);
  s.ranks.assign(n, kNever);  // of the pair that starts here; kNever also for a place that is gone
  s.next.resize(n);
  s.previous.resize(n);
  const auto later = std::greater<>();
  const auto rate = [&](std::uint32_t i) {
    s.ranks[i] = s.next[i] == n ? kNever : find_pair(s.ids[i], s.ids[s.next[i]]).rank;
    if (s.ranks[i] != kNever) s.heap.push_back((std::uint64_t{s.ranks[i]} << 32U) | i);
    return s.ranks[i] != kNever;
  };
  for (std::uint32_t i = 0; i < n; ++i) {
    s.ids[i] = byte_ids_[byte_of(piece[i])];
    s.next[i] = i + 1;
    s.previous[i] = i - 1;  // wraps for the first: never followed
  }
  for (std::uint32_t i = 0; i < n; ++i) rate(i);
  std::make_heap(s.heap.begin(), s.heap.end(), later);
  while (!s.heap.empty()) {
    std::pop_heap(s.heap.begin(), s.heap.end(), later);
    const std::uint64_t top = s.heap.back();
    s.heap.pop_back();
    const auto i = static_cast<std::uint32_t>(top);
    if (s.ranks[i] != top >> 32U) continue;
    const std::uint32_t gone = s.next[i];
    s.ids[i] = find_pair(s.ids[i], s.ids[gone]).merged;
    s.ranks[gone] = kNever;
    s.next[i] = s.next[gone];
    if (s.next[i] != n) s.previous[s.next[i]] = i;
    if (rate(i)) std::push_heap(s.heap.begin(), s.heap.end(), later);
    if (i != 0 && rate(s.previous[i])) std::push_heap(s.heap.begin(), s.heap.end(), later);
  }
  for (std::uint32_t i = 0; i < n; i = s.next[i]) out.push_back(s.ids[i]);
}

}  // namespace anabranch
