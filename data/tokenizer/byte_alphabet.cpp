#include "data/tokenizer/byte_alphabet.h"

#include <cstddef>
#include <utility>

#include "data/tokenizer/split.h"

namespace anabranch {
namespace {

constexpr std::size_t kAlphabetEnd = 0x100 + 68;  // 68 bytes do not stand for themselves

struct Alphabet {
  std::array<std::uint8_t, 256> order{};
  std::array<std::uint16_t, 256> code_of{};          // byte to code point
  std::array<std::int16_t, kAlphabetEnd> byte_of{};  // code point to byte, -1 where none
};

constexpr bool stands_for_itself(std::size_t byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
}

constexpr Alphabet make_alphabet() {
  Alphabet a;
  for (auto& byte : a.byte_of) byte = -1;
  std::size_t placed = 0;
  std::size_t extra = 0x100;
  for (const bool itself : {true, false}) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      if (stands_for_itself(byte) != itself) continue;
      const std::size_t code = itself ? byte : extra++;
      a.order[placed++] = static_cast<std::uint8_t>(byte);
      a.code_of[byte] = static_cast<std::uint16_t>(code);
      a.byte_of[code] = static_cast<std::int16_t>(byte);
    }
  }
  return a;
}

constexpr Alphabet kAlphabet = make_alphabet();

}  // namespace

const std::array<std::uint8_t, 256>& alphabet_order() { return kAlphabet.order; }

std::string spell_bytes(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size() * 2);
  for (const char c : bytes) {
    const unsigned code = kAlphabet.code_of[static_cast<std::uint8_t>(c)];
    if (code >= 0x80) out += static_cast<char>(0xC0U | (code >> 6U));
    out += static_cast<char>(code >= 0x80 ? 0x80U | (code & 0x3FU) : code);
  }
  return out;
}

std::optional<std::string> unspell_bytes(std::string_view spelling) {
  std::string out;
  for (std::size_t i = 0; i < spelling.size();) {
    const auto [code, size] = decode_utf8(spelling, i);
    if (size == 0 || code >= kAlphabetEnd || kAlphabet.byte_of[code] < 0) return std::nullopt;
    out += static_cast<char>(kAlphabet.byte_of[code]);
    i += size;
  }
  return out;
}

}  // namespace anabranch
