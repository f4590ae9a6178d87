// Cutting text into pieces before byte-pair merging, as GPT-2's and GPT-4's regular expressions do.
//
// Letters, numbers and spaces are the ranges of unicode_ranges.h. Bytes that are not valid UTF-8
// count one by one as characters that are neither letter, number nor space, so that every byte
// string can be cut; the pieces of a text, joined, are always the text.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace anabranch {

enum class SplitPattern {
  kGpt2,  // contractions, ` ?\p{L}+`, ` ?\p{N}+`, ` ?other+`, spaces
  kGpt4   // any contraction case, one leading sign for a word, digits by one or two, line ends
};

// The regular expression of a pattern, as it stands in tokenizer.json.
std::string_view split_regex(SplitPattern pattern);

// Finds the pieces of a text by hand-written rules.
//
// Cheap to copy and free of state: one object serves any number of threads. It gives exactly the
// pieces of `RegexSplitter`, without the cost of a regular expression.
class Splitter {
 public:
  explicit Splitter(SplitPattern pattern);

  [[nodiscard]] SplitPattern pattern() const { return pattern_; }

  // The end of the piece that starts at `begin`, a piece's start below text.size().
  [[nodiscard]] std::size_t piece_end(std::string_view text, std::size_t begin) const {
    return pattern_ == SplitPattern::kGpt2 ? gpt2_end(text, begin) : gpt4_end(text, begin);
  }

  // Calls f(std::string_view) with each piece in order.
  template <class F>
  void for_each(std::string_view text, F&& f) const {
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = piece_end(text, begin);
      f(text.substr(begin, end - begin));
      begin = end;
    }
  }

 private:
  // A character's class and how many bytes it takes.
  struct Character {
    std::uint8_t kind;
    std::uint8_t size;
  };

  [[nodiscard]] Character at(std::string_view text, std::size_t i) const;
  [[nodiscard]] Character decode(std::string_view text, std::size_t i) const;
  [[nodiscard]] std::size_t skip(std::string_view text, std::size_t i, std::uint8_t kind) const;
  [[nodiscard]] std::size_t gpt2_end(std::string_view text, std::size_t begin) const;
  [[nodiscard]] std::size_t gpt4_end(std::string_view text, std::size_t begin) const;
  [[nodiscard]] std::size_t gpt4_other_end(std::string_view text, std::size_t i) const;
  [[nodiscard]] std::size_t space_end(std::string_view text, std::size_t begin, bool lines) const;

  SplitPattern pattern_;
  std::shared_ptr<const std::vector<std::uint8_t>> kinds_;  // class by code point
  std::array<std::uint8_t, 256> first_{};  // class by first byte, or "more bytes follow"
};

// Finds the pieces of a text with PCRE2 from the regular expression itself: what defines the pieces
// of `Splitter`, and what it is tested against. One object per thread. Its matching is compiled to
// machine code where PCRE2 can.
class RegexSplitter {
 public:
  explicit RegexSplitter(SplitPattern pattern);
  ~RegexSplitter();
  RegexSplitter(const RegexSplitter&) = delete;
  RegexSplitter& operator=(const RegexSplitter&) = delete;

  // The pieces of `text`, views into it. Throws Error if PCRE2 gives up.
  [[nodiscard]] std::vector<std::string_view> split(std::string_view text);

 private:
  struct Program;
  std::unique_ptr<Program> program_;
};

// The code point that starts at text[i] and its length in bytes; length 0 if what stands there is
// not valid UTF-8 (overlong forms, surrogates and values above U+10FFFF are not).
std::pair<std::uint32_t, std::size_t> decode_utf8(std::string_view text, std::size_t i);

}  // namespace anabranch
