#include "data/tokenizer/split.h"

#include <algorithm>

#include "data/tokenizer/unicode_ranges.h"

namespace anabranch {
namespace {

constexpr std::uint8_t kOther = 0;
constexpr std::uint8_t kLetter = 1;
constexpr std::uint8_t kNumber = 2;
constexpr std::uint8_t kSpace = 3;
constexpr std::uint8_t kMore = 4;  // a first byte that does not settle the class

std::shared_ptr<const std::vector<std::uint8_t>> make_kinds() {
  const auto last = std::max(
      {letter_ranges().back().last, number_ranges().back().last, space_ranges().back().last});
  auto kinds = std::make_shared<std::vector<std::uint8_t>>(std::size_t{last} + 1, kOther);
  const auto fill = [&](std::span<const CodeRange> ranges, std::uint8_t kind) {
    for (const CodeRange& range : ranges) {
      for (std::size_t code = range.first; code <= range.last; ++code) (*kinds)[code] = kind;
    }
  };
  fill(letter_ranges(), kLetter);
  fill(number_ranges(), kNumber);
  fill(space_ranges(), kSpace);
  return kinds;
}

// The byte at i, or NUL past the end, which no rule looks for.
char byte_at(std::string_view text, std::size_t i) { return i < text.size() ? text[i] : '\0'; }

bool is_line_end(char c) { return c == '\r' || c == '\n'; }

// The length of GPT-2's contraction after the apostrophe at `i`, 0 if there is none.
std::size_t contraction(std::string_view text, std::size_t i) {
  const char a = byte_at(text, i + 1);
  if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
  const char b = byte_at(text, i + 2);
  if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) return 3;
  return 0;
}

// As above in either case. U+017F, the long s, folds to s.
std::size_t caseless_contraction(std::string_view text, std::size_t i) {
  if (byte_at(text, i + 1) == '\xC5' && byte_at(text, i + 2) == '\xBF') return 3;
  const auto lower = [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  };
  const char folded[] = {'\'', lower(byte_at(text, i + 1)), lower(byte_at(text, i + 2))};
  return contraction({folded, sizeof folded}, 0);
}

}  // namespace

std::string_view split_regex(SplitPattern pattern) {
  if (pattern == SplitPattern::kGpt2) {
    return R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
  }
  return R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,2})"
         R"(| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)";
}

std::pair<std::uint32_t, std::size_t> decode_utf8(std::string_view text, std::size_t i) {
  const auto byte = [&](std::size_t k) {
    return std::uint32_t{static_cast<std::uint8_t>(text[k])};
  };
  const std::uint32_t first = byte(i);
  if (first < 0x80) return {first, 1};
  const std::size_t size = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || i + size > text.size()) return {0, 0};
  std::uint32_t code = first & (0x7FU >> size);
  for (std::size_t k = i + 1; k < i + size; ++k) {
    if ((byte(k) & 0xC0U) != 0x80U) return {0, 0};
    code = (code << 6U) | (byte(k) & 0x3FU);
  }
  const bool overlong = (size == 3 && code < 0x800) || (size == 4 && code < 0x10000);
  const bool surrogate = code >= 0xD800 && code <= 0xDFFF;
  if (overlong || surrogate || code > 0x10FFFF) return {0, 0};
  return {code, size};
}

Splitter::Splitter(SplitPattern pattern) : pattern_(pattern), kinds_(make_kinds()) {
  for (std::size_t byte = 0; byte < 256; ++byte) {
    first_[byte] = byte < 0x80 ? (*kinds_)[byte] : kMore;
  }
}

Splitter::Character Splitter::decode(std::string_view text, std::size_t i) const {
  const auto [code, size] = decode_utf8(text, i);
  if (size == 0) return {kOther, 1};
  return {code < kinds_->size() ? (*kinds_)[code] : kOther, static_cast<std::uint8_t>(size)};
}

inline Splitter::Character Splitter::at(std::string_view text, std::size_t i) const {
  const std::uint8_t kind = first_[static_cast<std::uint8_t>(text[i])];
  return kind != kMore ? Character{kind, 1} : decode(text, i);
}

// The end of the run of characters of one class from i.
inline std::size_t Splitter::skip(std::string_view text, std::size_t i, std::uint8_t kind) const {
  while (i < text.size()) {
    const Character c = at(text, i);
    if (c.kind != kind) break;
    i += c.size;
  }
  return i;
}

// \s+(?!\S)|\s+ and, with `lines`, \s*[\r\n] before them: the run up to its last line end; else
// the run at the end of the text; else the run without its last character if there are two.
std::size_t Splitter::space_end(std::string_view text, std::size_t begin, bool lines) const {
  std::size_t end = begin;
  std::size_t last = begin;  // start of the run's last character
  std::size_t line_end = 0;
  while (end < text.size()) {
    const Character c = at(text, end);
    if (c.kind != kSpace) break;
    last = end;
    end += c.size;
    if (is_line_end(text[last])) line_end = end;
  }
  if (lines && line_end != 0) return line_end;
  if (end == text.size() || last == begin) return end;
  return last;
}

std::size_t Splitter::gpt2_end(std::string_view text, std::size_t begin) const {
  if (text[begin] == '\'') {
    if (const std::size_t size = contraction(text, begin); size != 0) return begin + size;
  }
  const std::size_t word = begin + (text[begin] == ' ' ? 1U : 0U);
  if (word == text.size()) return word;
  const Character c = at(text, word);
  if (c.kind != kSpace) return skip(text, word + c.size, c.kind);
  return space_end(text, begin, false);
}

// [^\s\p{L}\p{N}]++[\r\n]* from i.
std::size_t Splitter::gpt4_other_end(std::string_view text, std::size_t i) const {
  i = skip(text, i, kOther);
  while (is_line_end(byte_at(text, i))) ++i;
  return i;
}

std::size_t Splitter::gpt4_end(std::string_view text, std::size_t begin) const {
  const Character c = at(text, begin);
  const std::size_t next = begin + c.size;
  if (c.kind == kLetter) return skip(text, next, kLetter);
  if (c.kind == kNumber) {
    if (next == text.size()) return next;
    const Character second = at(text, next);
    return second.kind == kNumber ? next + second.size : next;
  }
  if (text[begin] == '\'') {
    if (const std::size_t size = caseless_contraction(text, begin); size != 0) return begin + size;
  }
  if (next == text.size()) return next;
  if (!is_line_end(text[begin])) {
    const Character second = at(text, next);
    if (second.kind == kLetter) return skip(text, next + second.size, kLetter);
    if (c.kind == kSpace && text[begin] == ' ' && second.kind == kOther) {
      return gpt4_other_end(text, next);
    }
  }
  return c.kind == kOther ? gpt4_other_end(text, begin) : space_end(text, begin, true);
}

}  // namespace anabranch
