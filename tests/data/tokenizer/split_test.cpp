#include "data/tokenizer/split.h"

#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "data/tokenizer/unicode_ranges.h"
#include "tests/data/tokenizer/vectors.h"

namespace anabranch {
namespace {

using Pieces = std::vector<std::string_view>;

Pieces split(SplitPattern pattern, std::string_view text) {
  Pieces pieces;
  Splitter(pattern).for_each(text, [&](std::string_view piece) { pieces.push_back(piece); });
  return pieces;
}

TEST(Splitter, CutsAsGpt2Does) {
  const auto gpt2 = [](std::string_view text) { return split(SplitPattern::kGpt2, text); };
  EXPECT_EQ(gpt2("Hello world, it's 2024!"),
            (Pieces{"Hello", " world", ",", " it", "'s", " 2024", "!"}));
  EXPECT_EQ(gpt2("a  b\n\n c"), (Pieces{"a", " ", " b", "\n\n", " c"}));
  EXPECT_EQ(gpt2("I'LL 'tis"), (Pieces{"I", "'", "LL", " '", "tis"}));
  EXPECT_EQ(gpt2("x \n"), (Pieces{"x", " \n"}));
  EXPECT_EQ(gpt2(""), Pieces{});
}

TEST(Splitter, CutsAsGpt4DoesWithDigitsByTwo) {
  const auto gpt4 = [](std::string_view text) { return split(SplitPattern::kGpt4, text); };
  EXPECT_EQ(gpt4("I'LL pay $12345."), (Pieces{"I", "'LL", " pay", " $", "12", "34", "5", "."}));
  EXPECT_EQ(gpt4("(word)\n\nnext"), (Pieces{"(word", ")\n\n", "next"}));
  EXPECT_EQ(gpt4("a  \n  b"), (Pieces{"a", "  \n", " ", " b"}));
  EXPECT_EQ(gpt4("\tx \t7"), (Pieces{"\tx", " ", "\t", "7"}));
}

// U+017F folds to s; U+180E and U+001C are spaces to some libraries and not to Unicode; U+0085 is.
TEST(Splitter, FollowsUnicode) {
  EXPECT_EQ(split(SplitPattern::kGpt4, "x'\xC5\xBF y"), (Pieces{"x", "'\xC5\xBF", " y"}));
  EXPECT_EQ(split(SplitPattern::kGpt2, "a\xE1\xA0\x8E\x1C"), (Pieces{"a", "\xE1\xA0\x8E\x1C"}));
  EXPECT_EQ(split(SplitPattern::kGpt2, "a\xC2\x85\n"), (Pieces{"a", "\xC2\x85\n"}));
  EXPECT_EQ(split(SplitPattern::kGpt2, "\xD9\xA3\xE2\x85\xAB"), (Pieces{"\xD9\xA3\xE2\x85\xAB"}));
}

// A byte that is no UTF-8 is one character, neither letter, number nor space.
TEST(Splitter, TakesInvalidBytesOneByOne) {
  EXPECT_EQ(split(SplitPattern::kGpt2, "a\xC3 b\xE2\x80z"),
            (Pieces{"a", "\xC3", " b", "\xE2\x80", "z"}));
  EXPECT_EQ(decode_utf8("\xED\xA0\x80", 0).second, 0U);      // a surrogate
  EXPECT_EQ(decode_utf8("\xC0\x80", 0).second, 0U);          // overlong
  EXPECT_EQ(decode_utf8("\xF4\x90\x80\x80", 0).second, 0U);  // above U+10FFFF
  EXPECT_EQ(decode_utf8("\xF4\x8F\xBF\xBF", 0), std::make_pair(0x10FFFFU, std::size_t{4}));
}

TEST(Splitter, EqualsTheRegularExpression) {
  for (const SplitPattern pattern : {SplitPattern::kGpt2, SplitPattern::kGpt4}) {
    RegexSplitter regex(pattern);
    std::mt19937 rng(7);
    for (int i = 0; i < 4000; ++i) {
      const std::string text = test::random_text(rng, 1 + rng() % 16);
      ASSERT_EQ(split(pattern, text), regex.split(text)) << testing::PrintToString(text);
    }
  }
}

// Every code point up to the last letter and a sample above: before a letter and before a digit.
TEST(Splitter, EqualsTheRegularExpressionOnEveryCodePoint) {
  for (const SplitPattern pattern : {SplitPattern::kGpt2, SplitPattern::kGpt4}) {
    RegexSplitter regex(pattern);
    const std::uint32_t dense = letter_ranges().back().last + 64;
    for (std::uint32_t first = 0; first < 0x110000; first += first < dense ? 64 : 0x2000) {
      std::string text;
      for (std::uint32_t code = first; code < first + 64; ++code) {
        if (code >= 0xD800 && code < 0xE000) continue;
        test::append_utf8(text, code);
        text += 'x';
        test::append_utf8(text, code);
        text += "7 ";
      }
      ASSERT_EQ(split(pattern, text), regex.split(text)) << first;
    }
  }
}

TEST(UnicodeRanges, AscendAndHoldKnownMembers) {
  for (const auto ranges : {letter_ranges(), number_ranges(), space_ranges()}) {
    for (std::size_t i = 0; i < ranges.size(); ++i) {
      EXPECT_LE(ranges[i].first, ranges[i].last);
      if (i == 0) continue;
      EXPECT_GT(ranges[i].first, ranges[i - 1].last + 1);
    }
  }
  EXPECT_STREQ(kUnicodeVersion, "14.0.0");
  EXPECT_EQ(letter_ranges().front().first, std::uint32_t{'A'});
  EXPECT_EQ(number_ranges().front().first, std::uint32_t{'0'});
  EXPECT_EQ(space_ranges().back().first, 0x3000U);
}

}  // namespace
}  // namespace anabranch
