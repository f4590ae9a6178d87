#include "data/loader.h"

#include <cmath>
#include <map>
#include <set>

#include "data/bigram.h"
#include "data/validation.h"
#include "tests/data/shard/text_set.h"

namespace anabranch {
namespace {

using test::expect_error;
using test::Folder;

constexpr int64_t kT = 16;

// Two sources of shards; y is a quarter of the samples.
struct Loading : testing::Test {
  Loading() {
    test::spill(folder.path("x.jsonl"), test::json_lines(test::documents(300, 1, 60)));
    test::spill(folder.path("y.jsonl"), test::json_lines(test::documents(40, 2, 60)));
    BuildOptions options = test::build_options(folder.path("one"), {folder.path("x.jsonl")});
    options.shard_tokens = 3000;
    build_shards(tokenizer, options);
    options.out = folder.path("two");
    options.sources[0].name = std::string("x");
    options.sources[0].weight = 3;
    options.sources.push_back({.name = "y", .inputs = {folder.path("y.jsonl")}, .weight = 1});
    build_shards(tokenizer, options);
  }

  // One row of a batch: inputs, targets, where documents begin.
  struct Row {
    std::vector<int32_t> first, second, starts;
    bool operator==(const Row&) const = default;
  };

  // By sample number.
  using Rows = std::map<int64_t, Row>;

  static void add_rows(const Batch& batch, Rows& rows) {
    for (size_t b = 0; b < batch.samples.size(); ++b) {
      const auto begin = static_cast<int64_t>(b) * kT;
      const int32_t* in = batch.inputs.data<int32_t>() + begin;
      const int32_t* out = batch.targets.data<int32_t>() + begin;
      const int32_t* start = batch.document_starts.data<int32_t>() + begin;
      const Row row{{in, in + kT}, {out, out + kT}, {start, start + kT}};
      EXPECT_TRUE(rows.emplace(batch.samples[b], row).second);
    }
  }

  // The rows of some steps of 12 samples, over all ranks.
  static Rows steps(const Dataset& dataset, int ranks, int64_t micro_batch, int64_t start,
                    int64_t count, Packing packing = Packing::kWindows) {
    Rows rows;
    for (int rank = 0; rank < ranks; ++rank) {
      const int64_t micro_batches = 12 / (ranks * micro_batch);
      Loader loader(dataset, {.T = kT,
                              .micro_batch = micro_batch,
                              .micro_batches = micro_batches,
                              .rank = rank,
                              .ranks = ranks,
                              .seed = 5,
                              .packing = packing,
                              .with_document_starts = true,
                              .start_sample = start});
      for (int64_t step = 0; step < count; ++step) {
        EXPECT_EQ(loader.position(), start + step * 12);
        for (int64_t j = 0; j < micro_batches; ++j) {
          const Batch batch = loader.next();
          EXPECT_EQ(batch.first_sample, start + step * 12);
          EXPECT_EQ(batch.target_tokens, micro_batch * kT);
          EXPECT_EQ(batch.samples[0], batch.first_sample + (j * ranks + rank) * micro_batch);
          add_rows(batch, rows);
        }
      }
    }
    return rows;
  }

  Folder folder;
  Tokenizer tokenizer = test::byte_tokenizer();
};

TEST_F(Loading, TheSameGlobalBatchForAnyNumberOfRanks) {
  const Dataset dataset = Dataset::open(folder.path("two"));
  for (const Packing packing : {Packing::kWindows, Packing::kBestFit}) {
    const Rows want = steps(dataset, 1, 1, 0, 60, packing);  // more than an epoch of both
    EXPECT_EQ(want.size(), 720U);
    for (const auto& [ranks, micro_batch] : {std::pair{1, 3}, {2, 1}, {2, 6}, {3, 2}, {4, 3}}) {
      EXPECT_EQ(steps(dataset, ranks, micro_batch, 0, 60, packing), want) << ranks;
    }
  }
}

TEST_F(Loading, OneIntegerRestoresThePosition) {
  const Dataset dataset = Dataset::open(folder.path("two"));
  for (const Packing packing : {Packing::kWindows, Packing::kBestFit}) {
    Rows all = steps(dataset, 2, 3, 0, 70, packing);
    for (const int64_t step : {1, 33, 69}) {
      const Rows rest = steps(dataset, 3, 1, step * 12, 70 - step, packing);
      EXPECT_EQ(rest, Rows(all.lower_bound(step * 12), all.end())) << step;
    }
  }
}

TEST_F(Loading, AnEpochHasEveryWindowOnce) {
  const Dataset dataset = Dataset::open(folder.path("one"));
  const std::vector<int32_t> tokens = test::all_tokens(dataset.sources()[0].train);
  EXPECT_GT(dataset.sources()[0].train.shards().size(), 1U);
  const int64_t windows = (std::ssize(tokens) - 1) / kT;
  std::multiset<std::vector<int32_t>> want, got;
  for (int64_t w = 0; w < windows; ++w) {
    want.emplace(tokens.begin() + w * kT, tokens.begin() + w * kT + kT);
  }
  Loader loader(dataset, {.T = kT, .micro_batch = 1, .seed = 1});
  EXPECT_EQ(loader.samples_per_epoch(), windows);
  for (int64_t epoch = 0; epoch < 2; ++epoch) {
    got.clear();
    for (int64_t w = 0; w < windows; ++w) {
      const Batch batch = loader.next();
      const int32_t* in = batch.inputs.data<int32_t>();
      got.emplace(in, in + kT);
      EXPECT_TRUE(std::equal(in + 1, in + kT, batch.targets.data<int32_t>()));
    }
    EXPECT_EQ(got, want) << epoch;
  }
}

TEST_F(Loading, BestFitRowsBeginWithADocument) {
  const Dataset dataset = Dataset::open(folder.path("one"));
  const Rows rows = steps(dataset, 1, 1, 0, 10, Packing::kBestFit);
  for (const auto& [sample, row] : rows) EXPECT_EQ(row.first[0], 257) << sample;
  write_row_tables(dataset, kT);
  EXPECT_TRUE(std::filesystem::exists(rows_path(folder.path("one"), kT)));
  EXPECT_EQ(steps(dataset, 1, 1, 0, 10, Packing::kBestFit), rows);
}

// 257 begins each document and is nowhere else in this text.
TEST_F(Loading, ADocumentStartsWithItsFirstToken) {
  const Dataset dataset = Dataset::open(folder.path("two"));
  for (const Packing packing : {Packing::kWindows, Packing::kBestFit}) {
    for (const auto& [sample, row] : steps(dataset, 2, 1, 0, 60, packing)) {
      int32_t start = 0;
      for (size_t t = 0; t < kT; ++t) {
        if (row.first[t] == 257) start = static_cast<int32_t>(t);
        ASSERT_EQ(row.starts[t], start) << sample << " " << t;
      }
    }
  }
}

// Documents of 3, 5, 0, 2, 9 and 4 tokens over two shards, each token the number of its document.
struct DocumentStarts : testing::Test {
  DocumentStarts() {
    write_shard(folder.path("a.h5"), facts, std::vector<uint32_t>{0, 0, 0, 1, 1, 1, 1, 1},
                std::vector<uint64_t>{0, 3, 8, 8});
    write_shard(folder.path("b.h5"), facts,
                std::vector<uint32_t>{3, 3, 4, 4, 4, 4, 4, 4, 4, 4, 4, 5, 5, 5, 5},
                std::vector<uint64_t>{0, 2, 11, 15});
  }

  // Inputs and starts of all samples of 6 tokens.
  std::set<std::pair<std::vector<int32_t>, std::vector<int32_t>>> samples(Packing packing) {
    const Dataset dataset =
        Dataset::open_files({folder.path("a.h5"), folder.path("b.h5")}, {}, facts);
    Loader loader(dataset,
                  {.T = 6, .micro_batch = 1, .packing = packing, .with_document_starts = true});
    std::set<std::pair<std::vector<int32_t>, std::vector<int32_t>>> all;
    for (int64_t i = 0; i < loader.samples_per_epoch(); ++i) {
      const Batch batch = loader.next();
      const int32_t* in = batch.inputs.data<int32_t>();
      const int32_t* start = batch.document_starts.data<int32_t>();
      all.insert({{in, in + 6}, {start, start + 6}});
    }
    return all;
  }

  Folder folder;
  const TokenizerFacts facts{"t", "", 6, 0, 0};
};

TEST_F(DocumentStarts, InWindows) {
  const decltype(samples(Packing::kWindows)) want = {
      {{0, 0, 0, 1, 1, 1}, {0, 0, 0, 3, 3, 3}},   // tokens 0 .. 5
      {{1, 1, 3, 3, 4, 4}, {0, 0, 2, 2, 4, 4}},   // 6 .. 11, across the shards
      {{4, 4, 4, 4, 4, 4}, {0, 0, 0, 0, 0, 0}}};  // 12 .. 17
  EXPECT_EQ(samples(Packing::kWindows), want);
}

// Rows of 7 tokens: documents 1 and 3 fill one, 5 and 0 another; 7 of the 9 of 4 are the last.
TEST_F(DocumentStarts, InBestFitRows) {
  const decltype(samples(Packing::kBestFit)) want = {{{1, 1, 1, 1, 1, 3}, {0, 0, 0, 0, 0, 5}},
                                                     {{5, 5, 5, 5, 0, 0}, {0, 0, 0, 0, 4, 4}},
                                                     {{4, 4, 4, 4, 4, 4}, {0, 0, 0, 0, 0, 0}}};
  EXPECT_EQ(samples(Packing::kBestFit), want);
}

TEST_F(DocumentStarts, InValidation) {
  const Dataset dataset = Dataset::open_files({folder.path("a.h5")}, {folder.path("b.h5")}, facts);
  const Validation split(dataset.sources()[0], 6,
                         {.T = 6, .micro_batch = 2, .with_document_starts = true});
  ASSERT_EQ(split.batches(), 2);
  const auto starts = [&](int64_t i) {
    const Batch batch = split.at(i);
    const auto all = batch.document_starts.span<int32_t>();
    return std::vector<int32_t>(all.begin(), all.end());
  };
  EXPECT_EQ(starts(0), (std::vector<int32_t>{0, 0, 2, 2, 2, 2, 0, 0, 0, 0, 0, 5}));
  // The window ends with the split's 15th token, which is no input; the next window is not there.
  const std::vector<int32_t> last = starts(1);
  EXPECT_EQ(std::vector<int32_t>(last.begin(), last.begin() + 2), (std::vector<int32_t>{0, 0}));
  EXPECT_TRUE(std::is_sorted(last.begin(), last.begin() + 6));
  EXPECT_EQ(std::vector<int32_t>(last.begin() + 6, last.end()), std::vector<int32_t>(6, 0));
}

TEST_F(DocumentStarts, AreOnlyGivenIfAskedFor) {
  const Dataset dataset = Dataset::open_files({folder.path("a.h5")}, {folder.path("b.h5")}, facts);
  Loader loader(dataset, {.T = 6, .micro_batch = 1});
  EXPECT_TRUE(loader.next().document_starts.empty());
  const Validation split(dataset.sources()[0], 6, {.T = 6, .micro_batch = 1});
  EXPECT_TRUE(split.at(0).document_starts.empty());
}

TEST_F(DocumentStarts, ThatAreNotKnownAreRefused) {
  const std::vector<uint32_t> header = {20240520, 1, 9};
  std::string bytes(1024 + 18, '\0');
  std::copy_n(reinterpret_cast<const char*>(header.data()), 12, bytes.begin());
  test::spill(folder.path("x.bin"), bytes);
  const Dataset dataset =
      Dataset::open_files({folder.path("x.bin")}, {folder.path("x.bin")}, {.vocab_size = 50257});
  EXPECT_EQ(Loader(dataset, {.T = 4, .micro_batch = 1}).samples_per_epoch(), 2);
  expect_error(Fault::kData, {"x.bin does not say where its documents begin"}, [&] {
    const Loader loader(dataset, {.T = 4, .micro_batch = 1, .with_document_starts = true});
  });
  expect_error(Fault::kData, {"x.bin does not say where its documents begin"}, [&] {
    const Validation split(dataset.sources()[0], 50257,
                           {.T = 4, .micro_batch = 1, .with_document_starts = true});
  });
}

TEST_F(Loading, ATokenBeyondTheVocabularyIsNamed) {
  const TokenizerFacts small{.name = "small", .vocab_size = 257};  // 257 is the first token's id
  const Dataset dataset = Dataset::open_files({folder.path("one/train-00000.h5")}, {}, small);
  Loader loader(dataset, {.T = kT, .micro_batch = 4});
  expect_error(Fault::kData, {"train-00000.h5, token ", "sample ", "is 257", "257 entries"}, [&] {
    for (int i = 0; i < 100; ++i) loader.next();
  });
}

TEST_F(Loading, AFileThatShrinksWhileTrainingIsNamed) {
  const Dataset dataset = Dataset::open(folder.path("one"));
  std::filesystem::resize_file(folder.path("one/train-00001.h5"), 66000);
  Loader loader(dataset, {.T = kT, .micro_batch = 4});
  expect_error(Fault::kData, {"train-00001.h5", "truncated"}, [&] {
    for (int i = 0; i < 500; ++i) loader.next();
  });
}

TEST_F(Loading, ContextsLongerThanTheDataAreRefused) {
  const Dataset dataset = Dataset::open(folder.path("one"));
  const int64_t tokens = dataset.train_tokens();
  for (const Packing packing : {Packing::kWindows, Packing::kBestFit}) {
    expect_error(Fault::kData, {join(tokens, " training tokens"), "context of 1000000"}, [&] {
      const Loader loader(dataset, {.T = 1000000, .micro_batch = 1, .packing = packing});
    });
  }
  const Loader longest(dataset, {.T = tokens - 1, .micro_batch = 1});
  EXPECT_EQ(longest.samples_per_epoch(), 1);
}

TEST_F(Loading, WordsFollowTheSharesOfAnEpoch) {
  const Dataset one = Dataset::open(folder.path("one")), two = Dataset::open(folder.path("two"));
  const Loader loader(one, {.T = kT, .micro_batch = 1});
  ASSERT_TRUE(loader.knows_words());
  const int64_t words = one.sources()[0].train_words, samples = loader.samples_per_epoch();
  EXPECT_EQ(loader.words_before(0), 0);
  EXPECT_EQ(loader.words_before(samples), words);
  EXPECT_EQ(loader.words_before(3 * samples), 3 * words);
  for (int64_t sample = 0; sample < samples; ++sample) {
    EXPECT_EQ(loader.words_before(sample), words * sample / samples) << sample;
  }
  // Of two sources the second alone.
  const Loader second(two, {.T = kT, .micro_batch = 1, .weights = {0, 1}});
  EXPECT_EQ(second.words_before(second.samples_per_epoch()), two.sources()[1].train_words);
  const Dataset files =
      Dataset::open_files({folder.path("one/train-00000.h5")}, {}, one.tokenizer());
  EXPECT_FALSE(Loader(files, {.T = kT, .micro_batch = 1}).knows_words());
}

TEST_F(Loading, ThePositionIsBoundToTheData) {
  const Dataset one = Dataset::open(folder.path("one")), two = Dataset::open(folder.path("two"));
  const Loader a(one, {.T = kT, .micro_batch = 1, .seed = 1});
  const Loader b(one, {.T = kT, .micro_batch = 2, .ranks = 2, .seed = 1, .start_sample = 8});
  const Loader c(one, {.T = kT, .micro_batch = 1, .seed = 2});
  const Loader d(two, {.T = kT, .micro_batch = 1, .seed = 1});
  EXPECT_EQ(a.identity(), b.identity());
  EXPECT_NE(a.identity(), c.identity());
  EXPECT_NE(a.identity(), d.identity());
}

TEST_F(Loading, ValidationPredictsEveryTokenOnceOnAnyNumberOfRanks) {
  const Dataset dataset = Dataset::open(folder.path("one"));
  const DataSource& source = dataset.sources()[0];
  const std::vector<int32_t> tokens = test::all_tokens(source.val);
  for (const int ranks : {1, 2, 3}) {
    std::map<int64_t, std::vector<int32_t>> targets;
    int64_t count = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const Validation validation(source, 258,
                                  {.T = kT, .micro_batch = 4, .rank = rank, .ranks = ranks});
      EXPECT_EQ(validation.target_tokens(), std::ssize(tokens) - 1);
      for (int64_t i = 0; i < validation.batches(); ++i) {
        const Batch batch = validation.at(i);
        count += batch.target_tokens;
        for (size_t b = 0; b < 4; ++b) {
          const int32_t* row = batch.targets.data<int32_t>() + static_cast<int64_t>(b) * kT;
          for (int64_t t = 0; t < kT; ++t) {
            if (row[t] >= 0) targets[batch.samples[b]].push_back(row[t]);
          }
        }
      }
    }
    std::vector<int32_t> joined;
    for (const auto& [window, row] : targets) joined.insert(joined.end(), row.begin(), row.end());
    EXPECT_EQ(joined, std::vector<int32_t>(tokens.begin() + 1, tokens.end())) << ranks;
    EXPECT_EQ(count, std::ssize(tokens) - 1);
  }
  const Validation capped(source, 258, {.T = kT, .micro_batch = 4, .max_tokens = 100});
  EXPECT_EQ(capped.target_tokens(), 96);
  expect_error(Fault::kData, {"vocabulary has 20 entries"},
               [&] { (void)Validation(source, 20, {.T = kT, .micro_batch = 1}).at(0); });
}

// p(w | h) by hand from the counts of 1 2 1 2 1 3, for the pairs 1 2, 2 3 and 3 1.
TEST(Bigram, IsTheFormula) {
  const Folder folder;
  const TokenizerFacts facts{"t", "", 4, 0, 0};
  const std::vector<uint32_t> train = {1, 2, 1, 2, 1, 3}, val = {1, 2, 3, 1};
  write_shard(folder.path("train.h5"), facts, train, std::vector<uint64_t>{0, 6});
  write_shard(folder.path("val.h5"), facts, val, std::vector<uint64_t>{0, 4});
  const Dataset dataset =
      Dataset::open_files({folder.path("train.h5")}, {folder.path("val.h5")}, facts);
  const double p12 = (2 - 0.75) / 3 + 0.75 * 2 / 3 * 3 / 10;
  const double p23 = 0.75 * 1 / 2 * 2 / 10;
  const double p31 = 4.0 / 10;
  const std::vector<uint32_t> bytes = {0, 2, 3, 0};
  const BigramResult got = bigram(dataset.sources()[0].train, dataset.sources()[0].val, 4, bytes);
  EXPECT_EQ(got.tokens, 3);
  EXPECT_NEAR(got.nats_per_token, -(std::log(p12) + std::log(p23) + std::log(p31)) / 3, 1e-12);
  EXPECT_NEAR(got.bits_per_byte, -(std::log2(p12) + std::log2(p31)) / 5, 1e-12);
}

}  // namespace
}  // namespace anabranch
