#include "data/shard/build.h"

#include <barrier>
#include <csignal>
#include <map>
#include <set>
#include <sys/resource.h>
#include <thread>

#include "tests/data/shard/text_set.h"

namespace anabranch {
namespace {

using test::expect_error;
using test::Folder;

// The files below a folder, by name.
std::map<std::string, std::string> contents(const std::string& folder) {
  std::map<std::string, std::string> all;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    all[std::filesystem::relative(entry.path(), folder).string()] = test::slurp(entry.path());
  }
  return all;
}

// Builds as `ranks` threads do that share the folder.
BuildReport build_as(int ranks, BuildOptions options, const Tokenizer& tokenizer) {
  std::barrier meet(ranks);
  std::vector<BuildReport> reports(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  options.ranks = ranks;
  options.barrier = [&] { meet.arrive_and_wait(); };
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank, mine = options]() mutable {
      mine.rank = rank;
      reports[static_cast<size_t>(rank)] = build_shards(tokenizer, mine);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(reports.front().shards, reports.back().shards);
  EXPECT_EQ(reports.front().sources[0].train_tokens, reports.back().sources[0].train_tokens);
  return reports.front();
}

TEST(BuildShards, SameBytesForAnyNumberOfWorkersAndRanks) {
  const Folder folder;
  const Tokenizer tokenizer = test::byte_tokenizer();
  for (int file = 0; file < 9; ++file) {
    test::spill(folder.path(join("in/", file, ".jsonl")),
                test::json_lines(test::documents(3000, static_cast<uint32_t>(file), 200)));
  }
  // Nine files are shared out whole, one file by batches.
  for (const std::string input : {"in", "in/3.jsonl"}) {
    std::map<std::string, std::string> first;
    for (const auto& [ranks, workers] : {std::pair{1, 1}, {1, 2}, {1, 3}, {2, 1}, {2, 2}}) {
      const std::string out = folder.path(join("out-", input.size(), "-", ranks, "-", workers));
      BuildOptions options = test::build_options(out, {folder.path(input)});
      options.workers = workers;
      options.shard_tokens = 100000;
      const BuildReport report = build_as(ranks, options, tokenizer);
      EXPECT_GE(report.shards, 3);
      if (first.empty()) first = contents(out);
      EXPECT_EQ(contents(out), first) << input << ", " << ranks << " ranks, " << workers;
    }
    EXPECT_TRUE(first.contains("train-00001.h5"));
    EXPECT_TRUE(first.contains("val-00000.h5"));
    EXPECT_TRUE(first.contains("tokenizer.json"));
  }
}

TEST(BuildShards, EveryDocumentIsInOneSplitAfterItsFirstToken) {
  const Folder folder;
  const Tokenizer tokenizer = test::byte_tokenizer();
  const std::vector<std::string> texts = test::documents(500, 1, 80);
  test::spill(folder.path("in.jsonl"), test::json_lines(texts));
  BuildOptions options = test::build_options(folder.path("out"), {folder.path("in.jsonl")});
  options.shard_tokens = 5000;
  const BuildReport report = build_shards(tokenizer, options);
  const Dataset dataset = Dataset::open(folder.path("out"));
  dataset.verify();
  EXPECT_EQ(dataset.tokenizer().bos_id, 257);
  EXPECT_EQ(dataset.tokenizer().sha256, tokenizer.sha256());
  EXPECT_GT(dataset.sources()[0].train.shards().size(), 2U);

  std::multiset<std::string> found;
  const auto collect = [&](const TokenStream& stream) {
    const std::vector<int32_t> tokens = test::all_tokens(stream);
    const std::vector<uint64_t> offsets = stream.document_offsets();
    for (size_t d = 0; d + 1 < offsets.size(); ++d) {
      EXPECT_EQ(tokens[offsets[d]], 257);
      const auto begin = tokens.begin() + static_cast<int64_t>(offsets[d]) + 1;
      const std::vector<TokenId> ids(begin, tokens.begin() + static_cast<int64_t>(offsets[d + 1]));
      found.insert(tokenizer.decode(ids));
    }
    return static_cast<int64_t>(offsets.size()) - 1;
  };
  EXPECT_EQ(collect(dataset.sources()[0].train), report.sources[0].train_documents);
  EXPECT_EQ(collect(dataset.sources()[0].val), report.sources[0].val_documents);
  EXPECT_EQ(found, std::multiset<std::string>(texts.begin(), texts.end()));
  EXPECT_NEAR(static_cast<double>(report.sources[0].val_documents), 50, 25);
}

TEST(BuildShards, WordsOfEachSplitAreCounted) {
  const Folder folder;
  std::string text;
  for (int line = 0; line < 200; ++line)
    text += join(line, " two\tthree", line % 3 ? "" : " 4", "\n");
  test::spill(folder.path("in.txt"), text);
  BuildOptions options = test::build_options(folder.path("out"), {folder.path("in.txt")});
  options.sources[0].format.unit = TextUnit::kLine;
  options.shard_tokens = 700;
  const BuildReport report = build_as(2, options, test::byte_tokenizer());
  EXPECT_EQ(report.sources[0].train_words + report.sources[0].val_words, count_words(text));
  const Dataset dataset = Dataset::open(folder.path("out"));
  const DataSource& source = dataset.sources()[0];
  EXPECT_EQ(source.train_words, report.sources[0].train_words);
  EXPECT_EQ(source.val_words, report.sources[0].val_words);
  const auto words_of = [](const TokenStream& stream) {
    std::string all;
    for (const int32_t id : test::all_tokens(stream)) {
      all += id == 257 ? '\n' : static_cast<char>(id);
    }
    return count_words(all);
  };
  EXPECT_EQ(source.train_words, words_of(source.train));
  EXPECT_EQ(source.val_words, words_of(source.val));
  EXPECT_GT(source.val_words, 0);
}

TEST(BuildShards, TheLastOfEachFileCanValidate) {
  const Folder folder;
  test::spill(folder.path("a.txt"), "a\nb\nc\nd\ne\nf\ng\n");
  test::spill(folder.path("b.txt"), "h\ni\nj\n");
  test::spill(folder.path("c.txt"), "k\n");
  BuildOptions options = test::build_options(folder.path("out"), {folder.path("*.txt")});
  options.sources[0].format.unit = TextUnit::kLine;
  options.validation_place = ValidationPlace::kLast;
  options.validation_fraction = 0.3;
  options.begin_documents = false;
  const auto text_of = [](const TokenStream& stream) {
    const std::vector<int32_t> tokens = test::all_tokens(stream);
    return std::string(tokens.begin(), tokens.end());
  };
  build_as(2, options, test::byte_tokenizer());
  const Dataset dataset = Dataset::open(folder.path("out"));
  EXPECT_EQ(text_of(dataset.sources()[0].train), "abcdehik");
  EXPECT_EQ(text_of(dataset.sources()[0].val), "fgj");

  options.validation_fraction = 1e-9;
  options.out = folder.path("least");
  EXPECT_EQ(build_shards(test::byte_tokenizer(), options).sources[0].val_documents, 1);
  options.validation_fraction = 0.9;
  options.sources[0].inputs = {folder.path("c.txt")};
  options.out = folder.path("none");
  expect_error(Fault::kData, {"nothing is left to train on"},
               [&] { build_shards(test::byte_tokenizer(), options); });
}

TEST(BuildShards, EmptyDocumentsAreRefusedOrCounted) {
  const Folder folder;
  const Tokenizer tokenizer = test::byte_tokenizer();
  test::spill(folder.path("in.jsonl"), test::json_lines({"a", "", "b", "c"}));
  BuildOptions options = test::build_options(folder.path("out"), {folder.path("in.jsonl")});
  expect_error(Fault::kData, {"in.jsonl:2", "empty"}, [&] { build_shards(tokenizer, options); });
  options.skip_empty = true;
  const BuildReport report = build_shards(tokenizer, options);
  EXPECT_EQ(report.sources[0].empty_documents, 1);
  EXPECT_EQ(report.sources[0].train_documents + report.sources[0].val_documents, 3);
  test::spill(folder.path("none.jsonl"), test::json_lines({"", ""}));
  options.sources[0].inputs = {folder.path("none.jsonl")};
  options.out = folder.path("out2");
  expect_error(Fault::kData, {"no document with text", "2 empty"},
               [&] { build_shards(tokenizer, options); });
}

TEST(BuildShards, InvalidUtf8IsKeptAndCounted) {
  const Folder folder;
  test::spill(folder.path("a.txt"), "good");
  test::spill(folder.path("b.txt"), "b\xff\x80x");
  BuildOptions options = test::build_options(folder.path("out"), {folder.path("*.txt")});
  options.validation_fraction = 0;
  EXPECT_EQ(build_shards(test::byte_tokenizer(), options).sources[0].invalid_utf8_documents, 1);
  const Dataset dataset = Dataset::open(folder.path("out"));
  EXPECT_EQ(test::all_tokens(dataset.sources()[0].train),
            (std::vector<int32_t>{257, 'g', 'o', 'o', 'd', 257, 'b', 255, 128, 'x'}));
  EXPECT_EQ(dataset.val_tokens(), 0);
}

TEST(BuildShards, AtLeastOneDocumentInEachSplit) {
  const Folder folder;
  const Tokenizer tokenizer = test::byte_tokenizer();
  test::spill(folder.path("one.txt"), "one document");
  BuildOptions options = test::build_options(folder.path("a"), {folder.path("one.txt")});
  expect_error(Fault::kData, {"1 document", "nothing is left to train on"},
               [&] { build_shards(tokenizer, options); });
  test::spill(folder.path("two.txt"), "one\ntwo\n");
  options.sources[0] = {.inputs = {folder.path("two.txt")}, .format = {.unit = TextUnit::kLine}};
  options.validation_fraction = 1e-9;
  const BuildReport report = build_shards(tokenizer, options);
  EXPECT_EQ(report.sources[0].train_documents, 1);
  EXPECT_EQ(report.sources[0].val_documents, 1);
}

TEST(BuildShards, SourcesHaveFoldersOfTheirOwn) {
  const Folder folder;
  test::spill(folder.path("x.jsonl"), test::json_lines(test::documents(50, 1, 50)));
  test::spill(folder.path("y.jsonl"), test::json_lines(test::documents(50, 2, 50)));
  BuildOptions options = test::build_options(folder.path("out"), {folder.path("x.jsonl")});
  options.sources[0].name = std::string("x");
  options.sources[0].weight = 3;
  options.sources.push_back({.name = "y", .inputs = {folder.path("y.jsonl")}, .weight = 1});
  build_shards(test::byte_tokenizer(), options);
  const Dataset dataset = Dataset::open(folder.path("out"));
  ASSERT_EQ(dataset.sources().size(), 2U);
  EXPECT_EQ(dataset.sources()[1].name, "y");
  EXPECT_EQ(dataset.sources()[0].weight, 3);
  EXPECT_GT(dataset.sources()[0].val.tokens(), 0);
  EXPECT_GT(dataset.sources()[1].val.tokens(), 0);
  EXPECT_TRUE(std::filesystem::exists(folder.path("out/sources/y/train-00000.h5")));
}

TEST(BuildShards, RefusesBadOptions) {
  const Folder folder;
  const Tokenizer tokenizer = test::byte_tokenizer();
  test::spill(folder.path("in.jsonl"), test::json_lines(test::documents(50, 1, 50)));
  const BuildOptions good = test::build_options(folder.path("out"), {folder.path("in.jsonl")});
  const auto expect = [&](const std::string& why, const auto& change) {
    BuildOptions options = good;
    change(options);
    expect_error(Fault::kUsage, {why}, [&] { build_shards(tokenizer, options); });
  };
  expect("'a b'", [](BuildOptions& o) { o.sources[0].name = std::string("a b"); });
  expect("two sources", [](BuildOptions& o) { o.sources.push_back(o.sources[0]); });
  expect("fraction 1", [](BuildOptions& o) { o.validation_fraction = 1; });
  expect("shards of 0", [](BuildOptions& o) { o.shard_tokens = 0; });
  expect("all or none", [](BuildOptions& o) {
    o.sources.push_back(o.sources[0]);
    o.sources[1].name = std::string("b");
    o.sources[1].weight = 1;
  });
  build_shards(tokenizer, good);
  expect("holds a data set already", [](BuildOptions&) {});
}

TEST(BuildShards, AFullDiskEndsTheBuildAndLeavesNoDataSet) {
  const Folder folder;
  test::spill(folder.path("in.jsonl"), test::json_lines(test::documents(5000, 1, 100)));
  const BuildOptions options = test::build_options(folder.path("out"), {folder.path("in.jsonl")});
  const auto before = std::signal(SIGXFSZ, SIG_IGN);
  rlimit old{};
  getrlimit(RLIMIT_FSIZE, &old);
  const rlimit low{200000, old.rlim_max};
  setrlimit(RLIMIT_FSIZE, &low);
  expect_error(Fault::kIo, {"out"}, [&] { build_shards(test::byte_tokenizer(), options); });
  setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, before);
  EXPECT_FALSE(std::filesystem::exists(folder.path("out/dataset.json")));
  build_shards(test::byte_tokenizer(), options);  // and the next one starts afresh
}

}  // namespace
}  // namespace anabranch
