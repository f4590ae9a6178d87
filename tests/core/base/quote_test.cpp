#include "core/base/quote.h"

#include <gtest/gtest.h>

namespace anabranch {
namespace {

TEST(Quote, ShowsShortTextWhole) {
  EXPECT_EQ(quote(""), "\"\"");
  EXPECT_EQ(quote("two words"), "\"two words\"");
  EXPECT_EQ(quote(std::string(80, 'x')), '"' + std::string(80, 'x') + '"');
}

TEST(Quote, CutsLongText) {
  EXPECT_EQ(quote(std::string(1 << 20, 'x')), '"' + std::string(80, 'x') + "\"...");
  EXPECT_EQ(excerpt("abcdef", 3), "abc...");
  EXPECT_EQ(excerpt("abc", 3), "abc");
}

TEST(Quote, CutsNoCharacterInTwo) {
  EXPECT_EQ(excerpt("ab\xC3\xA4xx", 3), "ab...");  // an a umlaut in the third and fourth byte
  EXPECT_EQ(excerpt("ab\xC3\xA4xx", 4), "ab\xC3\xA4...");
  EXPECT_EQ(excerpt(std::string(20, '\x80'), 8), std::string(8, '\x80') + "...");  // not UTF-8
}

TEST(Quote, SpellsControlCharacters) {
  EXPECT_EQ(quote(std::string_view("a\n\x1b[2J\0", 7)), "\"a\\x0a\\x1b[2J\\x00\"");
}

}  // namespace
}  // namespace anabranch
