#include "data/tokenizer/bpe.h"

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/data/folder.h"

namespace anabranch {
namespace {

using Ids = std::vector<TokenId>;

Vocabulary bytes_only() {
  Vocabulary vocabulary;
  for (int byte = 0; byte < 256; ++byte) {
    vocabulary.tokens.emplace_back(1, static_cast<char>(byte));
  }
  return vocabulary;
}

void add_merge(Vocabulary& vocabulary, TokenId left, TokenId right) {
  vocabulary.merges.push_back({left, right});
  vocabulary.tokens.push_back(vocabulary.tokens[left] + vocabulary.tokens[right]);
}

Ids encode(const Vocabulary& vocabulary, std::string_view piece) {
  Bpe::Scratch scratch;
  Ids out;
  Bpe(vocabulary, "test").encode(piece, scratch, out);
  return out;
}

// Merges by the definition: the earliest merge that applies, at its leftmost place, again and
// again.
Ids encode_by_definition(const Vocabulary& vocabulary, std::string_view piece) {
  std::map<std::pair<TokenId, TokenId>, std::size_t> ranks;
  for (std::size_t rank = 0; rank < vocabulary.merges.size(); ++rank) {
    ranks[{vocabulary.merges[rank].left, vocabulary.merges[rank].right}] = rank;
  }
  Ids ids;
  for (const char c : piece) ids.push_back(static_cast<std::uint8_t>(c));
  for (;;) {
    std::size_t best = vocabulary.merges.size();
    std::size_t place = 0;
    for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
      const auto found = ranks.find({ids[i], ids[i + 1]});
      if (found == ranks.end() || found->second >= best) continue;
      best = found->second;
      place = i;
    }
    if (best == vocabulary.merges.size()) return ids;
    const auto at = ids.begin() + static_cast<std::ptrdiff_t>(place);
    *at = static_cast<TokenId>(256 + best);
    ids.erase(at + 1);
  }
}

// Random merges over three letters, so that they overlap in every way.
Vocabulary random_vocabulary(std::mt19937& rng) {
  Vocabulary vocabulary = bytes_only();
  std::map<std::string, int> seen;
  Ids usable = {'a', 'b', 'c'};
  for (int i = 0; i < 60; ++i) {
    const TokenId left = usable[rng() % usable.size()];
    const TokenId right = usable[rng() % usable.size()];
    if (seen[vocabulary.tokens[left] + vocabulary.tokens[right]]++ != 0) continue;
    add_merge(vocabulary, left, right);
    usable.push_back(static_cast<TokenId>(vocabulary.tokens.size() - 1));
  }
  return vocabulary;
}

TEST(Bpe, MergesTheEarliestPairFirstAndTheLeftmostAmongEqual) {
  Vocabulary vocabulary = bytes_only();
  add_merge(vocabulary, 'b', 'c');  // 256
  add_merge(vocabulary, 'a', 'b');  // 257
  add_merge(vocabulary, 'a', 'a');  // 258
  EXPECT_EQ(encode(vocabulary, "abc"), (Ids{'a', 256}));
  EXPECT_EQ(encode(vocabulary, "aba"), (Ids{257, 'a'}));
  EXPECT_EQ(encode(vocabulary, "aaa"), (Ids{258, 'a'}));
  EXPECT_EQ(encode(vocabulary, "x"), (Ids{'x'}));
}

TEST(Bpe, EqualsTheDefinitionAtEveryLength) {
  std::mt19937 rng(3);
  for (int round = 0; round < 20; ++round) {
    const Vocabulary vocabulary = random_vocabulary(rng);
    const Bpe bpe(vocabulary, "test");
    Bpe::Scratch scratch;
    for (std::size_t length = 1; length < 150; ++length) {
      std::string piece;
      for (std::size_t i = 0; i < length; ++i) piece += static_cast<char>('a' + rng() % 3);
      Ids out;
      bpe.encode(piece, scratch, out);
      ASSERT_EQ(out, encode_by_definition(vocabulary, piece)) << piece;
    }
  }
}

// A megabyte without a place to cut, which no scan for the first merge would finish.
TEST(Bpe, TakesAMegabyteInOnePiece) {
  Vocabulary vocabulary = bytes_only();
  add_merge(vocabulary, 'a', 'b');
  for (TokenId id = 256; id < 266; ++id) add_merge(vocabulary, id, id);
  std::string piece;
  while (piece.size() < (1U << 20U)) piece += "ab";
  EXPECT_EQ(encode(vocabulary, piece), Ids(512, 266));
}

// "bc" merges first, so that nothing leads to "abc" by way of "ab": the whole piece is no short cut
// unless the vocabulary says so.
TEST(Bpe, TakesAPieceWholeOnlyIfMergesLeadThere) {
  Vocabulary vocabulary = bytes_only();
  add_merge(vocabulary, 'b', 'c');
  add_merge(vocabulary, 'a', 'b');
  add_merge(vocabulary, 257, 'c');  // 258, "abc"
  EXPECT_EQ(encode(vocabulary, "abc"), (Ids{'a', 256}));
  vocabulary.ignore_merges = true;
  EXPECT_EQ(encode(vocabulary, "abc"), (Ids{258}));
}

TEST(Bpe, NeverGivesASpecialToken) {
  Vocabulary vocabulary = bytes_only();
  vocabulary.tokens.emplace_back("end");
  vocabulary.specials = {256};
  vocabulary.ignore_merges = true;
  EXPECT_EQ(encode(vocabulary, "end"), (Ids{'e', 'n', 'd'}));
}

TEST(Bpe, RefusesAVocabularyThatIsNotWhole) {
  const auto refuse = [](const Vocabulary& vocabulary, const std::string& what) {
    test::expect_error(Fault::kData, {"test: ", what}, [&] { Bpe(vocabulary, "test"); });
  };
  Vocabulary missing = bytes_only();
  missing.tokens[65] = "no";
  refuse(missing, "byte 65 ('A'");
  missing = bytes_only();
  missing.specials = {10};
  refuse(missing, "byte 10");
  Vocabulary twice = bytes_only();
  twice.tokens.emplace_back("a");
  refuse(twice, "tokens 97 and 256 are both 'a'");
  Vocabulary empty = bytes_only();
  empty.tokens.emplace_back();
  refuse(empty, "token 256 is empty");
  Vocabulary wrong = bytes_only();
  wrong.merges = {{'a', 999}};
  refuse(wrong, "names token 999");
  wrong.merges = {{'a', 'b'}};
  refuse(wrong, R"(leads to "ab")");
  wrong.tokens.emplace_back("ab");
  wrong.merges = {{'a', 'b'}, {'a', 'b'}};
  refuse(wrong, "merge 1 (counted from 0) repeats merge 0");
  wrong.specials = {256};
  refuse(wrong, R"(leads to "ab")");
}

}  // namespace
}  // namespace anabranch
