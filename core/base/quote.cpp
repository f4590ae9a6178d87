#include "core/base/quote.h"

#include <array>
#include <cstdio>

namespace anabranch {

namespace {

// How much of the text to show so that no UTF-8 character is cut.
size_t cut(std::string_view text, size_t bytes) {
  if (text.size() <= bytes) return text.size();
  constexpr size_t kLongestCharacter = 4;
  for (size_t length = bytes; length + kLongestCharacter > bytes && length > 0; --length) {
    if ((static_cast<unsigned char>(text[length]) & 0xC0U) != 0x80U) return length;
  }
  return bytes;  // not UTF-8
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte != 0x7F) {
      out += c;
      continue;
    }
    std::array<char, 8> escape{};
    std::snprintf(escape.data(), escape.size(), "\\x%02x", byte);
    out += escape.data();
  }
  return out;
}

}  // namespace

std::string excerpt(std::string_view text, size_t bytes) {
  const size_t length = cut(text, bytes);
  return escaped(text.substr(0, length)) + (length < text.size() ? "..." : "");
}

std::string quote(std::string_view text) {
  const size_t length = cut(text, kQuotedBytes);
  return '"' + escaped(text.substr(0, length)) + (length < text.size() ? "\"..." : "\"");
}

}  // namespace anabranch
