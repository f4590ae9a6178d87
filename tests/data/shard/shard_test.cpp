#include "data/shard/shard.h"

#include <cstring>

#include "data/shard/dataset.h"
#include "tests/data/shard/text_set.h"

namespace anabranch {
namespace {

using test::expect_error;
using test::Folder;

const TokenizerFacts kFacts{"t", std::string(64, 'a'), 300, 299, 299};

std::string write(const Folder& folder, const std::string& name, const TokenizerFacts& facts,
                  int64_t count) {
  std::vector<uint32_t> tokens;
  for (int64_t i = 0; i < count; ++i) {
    tokens.push_back(static_cast<uint32_t>(i * 7 % facts.vocab_size));
  }
  const std::vector<uint64_t> offsets = {0, 10, static_cast<uint64_t>(count)};
  write_shard(folder.path(name), facts, tokens, offsets);
  return folder.path(name);
}

TEST(Shard, ReadsWhatWasWrittenInBothWidths) {
  const Folder folder;
  TokenizerFacts wide = kFacts;
  wide.vocab_size = 100000;
  for (const TokenizerFacts& facts : {kFacts, wide}) {
    const ShardReader shard(write(folder, "a.h5", facts, 1000000));
    shard.verify();
    EXPECT_EQ(shard.tokenizer(), facts);
    EXPECT_EQ(shard.tokens(), 1000000);
    EXPECT_EQ(shard.documents(), 2);
    EXPECT_EQ(shard.document_offsets(), (std::vector<uint64_t>{0, 10, 1000000}));
    std::vector<int32_t> part(400000);
    shard.read(500001, 400000, part.data());
    for (size_t i = 0; i < part.size(); i += 997) {
      ASSERT_EQ(part[i], static_cast<int64_t>(500001 + i) * 7 % facts.vocab_size);
    }
    EXPECT_THROW(shard.read(999999, 2, part.data()), Error);
  }
}

TEST(Shard, AStreamReadsAcrossFiles) {
  const Folder folder;
  std::vector<ShardReader> shards;
  for (const int64_t count : {100, 11, 50}) {
    shards.emplace_back(write(folder, join(count, ".h5"), kFacts, count));
  }
  const TokenStream stream(std::move(shards));
  EXPECT_EQ(stream.tokens(), 161);
  const std::vector<int32_t> tokens = test::all_tokens(stream);
  EXPECT_EQ(tokens[99], 99 * 7 % 300);
  EXPECT_EQ(tokens[110], 70);
  EXPECT_EQ(tokens[111], 0);
  EXPECT_EQ(stream.where(111), folder.path("50.h5") + ", token 0");
  EXPECT_EQ(stream.document_offsets(), (std::vector<uint64_t>{0, 10, 100, 110, 111, 121, 161}));
}

TEST(Shard, ReadsCerebrasAndLlmC) {
  const Folder folder;
  const std::vector<int32_t> ids = {5, 6, 70000, 8};
  {
    Hdf5Writer out(folder.path("corpus.h5"));
    out.add("data", Hdf5Type::kI32, {4});
    out.lay_out();
    out.write("data", ids.data(), 16);
    out.commit();
  }
  std::string bin(1024, '\0');
  const int32_t header[] = {20240520, 1, 3};
  std::memcpy(bin.data(), header, sizeof(header));
  bin += std::string("\x01\x00\xff\xff\x03\x00", 6);
  test::spill(folder.path("a.bin"), bin);
  const Dataset dataset = Dataset::open_files({folder.path("corpus.h5"), folder.path("a.bin")}, {},
                                              {.name = "gpt2", .vocab_size = 70001});
  const TokenStream& train = dataset.sources()[0].train;
  EXPECT_EQ(test::all_tokens(train), (std::vector<int32_t>{5, 6, 70000, 8, 1, 65535, 3}));
  expect_error(Fault::kData, {"corpus.h5", "does not say where its documents begin"},
               [&] { (void)train.document_offsets(); });
  test::spill(folder.path("b.bin"), bin.substr(0, bin.size() - 1));
  expect_error(Fault::kData, {"b.bin", "3 tokens, but only 2"},
               [&] { const ShardReader in(folder.path("b.bin")); });
  test::spill(folder.path("c.bin"), std::string(5000, 'x'));
  expect_error(Fault::kData, {"c.bin", "neither HDF5 nor"},
               [&] { const ShardReader in(folder.path("c.bin")); });
}

struct Damage : testing::Test {
  Damage() {
    test::spill(folder.path("in.jsonl"), test::json_lines(test::documents(3000, 1, 100)));
    BuildOptions options = test::build_options(out, {folder.path("in.jsonl")});
    options.shard_tokens = 60000;
    build_shards(test::byte_tokenizer(), options);
  }

  void check() const { Dataset::open(out).verify(); }

  Folder folder;
  std::string out = folder.path("out");
};

TEST_F(Damage, AFlippedBitAnywhereIsFoundAndNamed) {
  for (const char* name : {"train-00001.h5", "val-00000.h5", "tokenizer.json", "dataset.json"}) {
    const std::string path = out + "/" + name, whole = test::slurp(path);
    size_t found = 0;
    for (uint64_t i = 0; i < 60; ++i) {
      const PhiloxBlock random = philox(7, i);
      std::string bytes = whole;
      bytes[random[0] % bytes.size()] ^= static_cast<char>(1U << random[1] % 8);
      test::spill(path, bytes);
      try {
        check();
      } catch (const Error& error) {
        ++found;
        EXPECT_EQ(error.fault(), Fault::kData) << error.what();
        EXPECT_THAT(error.what(), testing::HasSubstr(out));
      }
    }
    // A name or the weight in dataset.json may change into another good one.
    EXPECT_GE(found, name == std::string("dataset.json") ? 40U : 60U) << name;
    test::spill(path, whole);
    check();
  }
}

TEST_F(Damage, ATruncatedOrMissingShardIsNamed) {
  const std::string path = out + "/train-00000.h5", whole = test::slurp(path);
  test::spill(path, whole.substr(0, whole.size() - 1));
  expect_error(Fault::kData, {path, "truncated"}, [&] { Dataset::open(out); });
  test::spill(path, "");
  expect_error(Fault::kData, {path, "0 bytes"}, [&] { Dataset::open(out); });
  std::filesystem::remove(path);
  expect_error(Fault::kData, {path, "no such file"}, [&] { Dataset::open(out); });
  std::filesystem::rename(out + "/train-00001.h5", path);
  expect_error(Fault::kData, {path}, [&] { Dataset::open(out); });
  std::filesystem::remove(out + "/dataset.json");
  expect_error(Fault::kData, {out, "no dataset.json"}, [&] { Dataset::open(out); });
}

TEST_F(Damage, AnotherTokenizerIsRefused) {
  test::byte_tokenizer("other").save(out + "/tokenizer.json");
  check();  // a name is not in the file: the same tokenizer
  std::string json = test::slurp(out + "/tokenizer.json");
  test::spill(out + "/tokenizer.json", json + " ");
  expect_error(Fault::kData, {"tokenizer.json", "SHA-256"}, [&] { Dataset::open(out); });
}

TEST_F(Damage, TheFingerprintFollowsTheContents) {
  const std::string before = Dataset::open(out).fingerprint();
  std::filesystem::rename(out, folder.path("moved"));
  EXPECT_EQ(Dataset::open(folder.path("moved")).fingerprint(), before);
  test::spill(folder.path("in.jsonl"), test::json_lines(test::documents(3000, 2, 100)));
  build_shards(test::byte_tokenizer(), test::build_options(out, {folder.path("in.jsonl")}));
  EXPECT_NE(Dataset::open(out).fingerprint(), before);
}

}  // namespace
}  // namespace anabranch
