// A short piece of text as one 16-byte key.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace anabranch {

static_assert(std::endian::native == std::endian::little, "keys put the first byte lowest");

// The longest piece that has a key.
inline constexpr std::size_t kMaxKeyBytes = 15;

// A piece's bytes, zero-padded, with its length in the last byte: equal if the pieces are.
struct PieceKey {
  std::uint64_t low;
  std::uint64_t high;

  bool operator==(const PieceKey&) const = default;

  [[nodiscard]] std::size_t size() const { return high >> 56U; }
};

// Spreads a key over 64 bits; the high ones are the best mixed.
inline std::uint64_t hash_key(const PieceKey& key) {
  std::uint64_t h = (key.low ^ std::rotl(key.high, 29)) * 0x9E3779B97F4A7C15U;
  h ^= h >> 32U;
  return h * 0xD6E8FEB86659FD93U;
}

// The key of text[begin, begin + size), 1 <= size <= kMaxKeyBytes.
inline PieceKey piece_key(std::string_view text, std::size_t begin, std::size_t size) {
  PieceKey key{0, 0};
  if (begin + 16 <= text.size()) {
    // One unconditional load and a mask: a copy of unknown length would cost a call.
    std::memcpy(&key, text.data() + begin, 16);
    const std::uint64_t mask = ~std::uint64_t{0} >> (8 * (8 - (size & 7U)) & 63U);
    if (size < 8) {
      key.low &= mask;
      key.high = 0;
    } else {
      key.high = size == 8 ? 0 : key.high & mask;
    }
  } else {
    std::memcpy(&key, text.data() + begin, size);
  }
  key.high |= std::uint64_t{size} << 56U;
  return key;
}

// A hash of bytes of any length.
inline std::uint64_t hash_bytes(std::string_view bytes) {
  std::uint64_t h = bytes.size();
  while (bytes.size() > kMaxKeyBytes) {
    h = hash_key({h ^ hash_key(piece_key(bytes, 0, 8)), h});
    bytes.remove_prefix(8);
  }
  return bytes.empty() ? h : hash_key(piece_key(bytes, 0, bytes.size())) + h;
}

}  // namespace anabranch
