#include "data/tokenizer/trainer.h"

#include <atomic>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "data/tokenizer/tokenizer.h"
#include "tests/data/tokenizer/vectors.h"

namespace anabranch {
namespace {

using Merges = std::vector<std::pair<std::string, std::string>>;

NextDocument documents(std::vector<std::string> texts) {
  return [texts = std::move(texts), i = std::size_t{0}](std::string& document) mutable {
    if (i == texts.size()) return false;
    document = texts[i++];
    return true;
  };
}

std::vector<std::string> corpus() {
  std::istringstream file(test::slurp(test::reference_path("corpus.txt")));
  std::vector<std::string> texts;
  for (std::string text; std::getline(file, text, '\x1E');) texts.push_back(text);
  return texts;
}

Merges merges(const Vocabulary& vocabulary) {
  Merges out;
  for (const auto [left, right] : vocabulary.merges) {
    out.emplace_back(vocabulary.tokens[left], vocabulary.tokens[right]);
  }
  return out;
}

TrainOptions small(std::size_t merge_count) {
  TrainOptions options;
  options.vocab_size = 256 + merge_count;
  options.specials = {};
  options.threads = 1;
  return options;
}

Merges train(const TrainOptions& options, std::vector<std::string> texts) {
  return merges(train_bpe(options, documents(std::move(texts))));
}

// The same merges in the same order, ties included.
TEST(Trainer, LearnsWhatHuggingFaceLearns) {
  for (const std::string name : {"gpt2", "gpt4"}) {
    const auto theirs = Tokenizer::load(test::reference_path(name + ".json"));
    TrainOptions options;
    options.vocab_size = theirs.vocab_size();
    options.pattern = theirs.pattern();
    options.specials = {"<|endoftext|>", "<|bos|>"};
    const Vocabulary ours = train_bpe(options, documents(corpus()));
    EXPECT_EQ(merges(ours), merges(theirs.vocabulary()));
    EXPECT_EQ(ours.tokens[255], "\xFF");
    EXPECT_EQ(ours.tokens.back(), "<|bos|>");
    EXPECT_EQ(ours.specials, (std::vector<TokenId>{1198, 1199}));
  }
}

TEST(Trainer, DoesNotDependOnThreads) {
  // Larger than what a thread takes at once.
  std::vector<std::string> texts;
  for (int i = 0; i < 30; ++i) {
    for (std::string& text : corpus()) texts.push_back(std::move(text));
  }
  TrainOptions options;
  options.vocab_size = 900;
  options.threads = 1;
  options.total_characters = 2'000'000;
  const Merges one = train(options, texts);
  for (const unsigned threads : {2U, 5U}) {
    options.threads = threads;
    EXPECT_EQ(train(options, texts), one) << threads;
  }
}

TEST(Trainer, CountsByHand) {
  EXPECT_EQ(train(small(1), {"ab ab", "ab cd"}), (Merges{{"a", "b"}}));
  EXPECT_EQ(train(small(2), {"ab ab ab", "ab cd"}), (Merges{{"a", "b"}, {" ", "ab"}}));
  // Pairs do not overlap within a run: "aaaa" holds (a, a) three times, and two merges.
  EXPECT_EQ(train(small(2), {"aaaa"}), (Merges{{"a", "a"}, {"aa", "aa"}}));
  // Ties: the smaller left token, then the smaller right one.
  EXPECT_EQ(train(small(1), {"dc", "ba", "bc"}), (Merges{{"b", "a"}}));
  // Nothing is counted across documents or pieces.
  EXPECT_EQ(train(small(1), {"a", "b", "a", "b", "xy"}), (Merges{{"x", "y"}}));
  // A space stands late in the alphabet: after the letters.
  EXPECT_EQ(train(small(1), {" a", "zz"}), (Merges{{"z", "z"}}));
}

TEST(Trainer, CutsDocumentsAndStops) {
  TrainOptions options = small(1);
  options.document_characters = 3;
  // A letter of two bytes counts once, and the tails, full of "zz", are not seen.
  EXPECT_EQ(train(options, {"\xC3\xA9"
                            "abzz",
                            "xxzzzz"}),
            (Merges{{"a", "b"}}));
  options = small(1);
  options.total_characters = 6;
  EXPECT_EQ(train(options, {"abab", "cdcdcdcd"}), (Merges{{"a", "b"}}));
  EXPECT_EQ(train(options, {"ab", "cdcdcdcd"}), (Merges{{"c", "d"}}));
  options = small(1);
  options.document_characters = 2;
  EXPECT_EQ(train(options, {"\xFF\xFE\xFD"}), (Merges{{"\xFF", "\xFE"}}));
}

TEST(Trainer, ReportsProgress) {
  TrainOptions options = small(300);
  std::vector<TrainProgress> reports;
  options.progress = [&](const TrainProgress& at) { reports.push_back(at); };
  train(options, corpus());
  ASSERT_GE(reports.size(), 3U);
  EXPECT_EQ(reports.front().merges, 0U);
  EXPECT_EQ(reports.back().merges, 300U);
  EXPECT_EQ(reports.back().all_merges, 300U);
  EXPECT_EQ(reports.back().documents, 400U);
  EXPECT_GT(reports.back().bytes, 100'000U);
}

TEST(Trainer, RefusesWhatItCannotDo) {
  TrainOptions options = small(1);
  options.vocab_size = 200;
  test::expect_error(Fault::kConfig, {"200", "256"}, [&] { train(options, {"ab"}); });
  options = small(9);
  test::expect_error(Fault::kData, {"only 2 merges of the 9", "at most 258"},
                     [&] { train(options, {"abc"}); });
  options.min_count = 2;
  test::expect_error(Fault::kData, {"only 1 merges"}, [&] { train(options, {"abab"}); });
  test::expect_error(Fault::kData, {"0 bytes"}, [&] { train(options, {}); });
  for (const char* bad : {"", "\xFF", "<|bos|>"}) {
    options = TrainOptions{};
    options.specials = {"<|bos|>", bad};
    test::expect_error(Fault::kConfig, {"special token 1"}, [&] { train(options, {"ab"}); });
  }
}

TEST(Trainer, PassesOnWhatTheSourceThrows) {
  for (const unsigned threads : {1U, 4U}) {
    TrainOptions options = small(1);
    options.threads = threads;
    std::atomic<int> left = 5;
    EXPECT_THROW(train_bpe(options,
                           [&](std::string& document) {
                             if (left-- == 0) throw std::runtime_error("gone");
                             document.assign(2'000'000, 'x');
                             return true;
                           }),
                 std::runtime_error);
  }
}

}  // namespace
}  // namespace anabranch
