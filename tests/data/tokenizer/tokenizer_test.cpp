#include "data/tokenizer/tokenizer.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/base/sha256.h"
#include "tests/data/tokenizer/vectors.h"

namespace anabranch {
namespace {

using Ids = std::vector<TokenId>;

Ids encode(const Tokenizer& tokenizer, std::string_view text) {
  Ids ids;
  tokenizer.encode_ordinary(text, ids);
  return ids;
}

// Bytes in order, one merge, one special token.
Tokenizer tiny(std::vector<std::string> specials = {"<|bos|>"}) {
  Vocabulary vocabulary;
  for (int byte = 0; byte < 256; ++byte) {
    vocabulary.tokens.emplace_back(1, static_cast<char>(byte));
  }
  vocabulary.tokens.emplace_back(" a");
  vocabulary.merges = {{' ', 'a'}};
  for (std::string& special : specials) {
    vocabulary.specials.push_back(static_cast<TokenId>(vocabulary.tokens.size()));
    vocabulary.tokens.push_back(std::move(special));
  }
  return {"tiny", std::move(vocabulary), SplitPattern::kGpt4};
}

void expect_vectors(const Tokenizer& tokenizer, const std::string& file) {
  const auto vectors = test::read_vectors(file);
  ASSERT_GT(vectors.size(), 500U);
  Encoder encoder = tokenizer.encoder();
  for (const test::Vector& vector : vectors) {
    EXPECT_EQ(encode(tokenizer, vector.text), vector.ids) << vector.text;
    Ids ids;
    encoder.encode(vector.text, ids);
    EXPECT_EQ(ids, vector.ids) << vector.text;
    EXPECT_EQ(tokenizer.decode(ids), vector.text);
  }
}

TEST(Tokenizer, GivesTheIdsOfTokenizersAndTiktoken) {
  expect_vectors(Tokenizer::load(test::reference_path("gpt2.json")), "vectors_gpt2.txt");
  expect_vectors(Tokenizer::load(test::reference_path("gpt4.json")), "vectors_gpt4.txt");
}

TEST(Tokenizer, GivesTheIdsOfTiktokenWithGpt2sVocabulary) {
  if (test::test_data().empty()) GTEST_SKIP() << "AB_TEST_DATA is not set";
  const std::string folder = test::test_data() + "/gpt2/";
  const auto tokenizer = Tokenizer::from_gpt2(folder + "vocab.bpe", folder + "encoder.json");
  EXPECT_EQ(tokenizer.vocab_size(), 50257U);
  EXPECT_EQ(tokenizer.eos_id(), 50256U);
  expect_vectors(tokenizer, "vectors_openai.txt");

  const test::Folder out;
  tokenizer.save_gpt2(out.path("vocab.bpe"), out.path("encoder.json"));
  EXPECT_EQ(test::slurp(out.path("vocab.bpe")), test::slurp(folder + "vocab.bpe"));
  EXPECT_EQ(test::slurp(out.path("encoder.json")), test::slurp(folder + "encoder.json"));
}

TEST(Tokenizer, EncodesAndDecodesEveryByteString) {
  const auto tokenizer = Tokenizer::load(test::reference_path("gpt4.json"));
  Encoder encoder = tokenizer.encoder();
  std::mt19937 rng(5);
  for (int i = 0; i < 2000; ++i) {
    const std::string text = test::random_text(rng, rng() % 40);
    Ids ids;
    encoder.encode(text, ids);
    ASSERT_EQ(tokenizer.decode(ids), text) << testing::PrintToString(text);
    ASSERT_EQ(ids, encode(tokenizer, text)) << testing::PrintToString(text);
    for (const TokenId id : ids) ASSERT_NE(tokenizer.token_bytes()[id], 0U);
  }
}

// What an encoder met before must not show: the same texts again in another order, many batches.
TEST(Tokenizer, AnEncoderHasNoMemory) {
  const auto tokenizer = Tokenizer::load(test::reference_path("gpt2.json"));
  const std::string corpus = test::slurp(test::reference_path("corpus.txt"));
  Encoder encoder = tokenizer.encoder();
  Ids first;
  encoder.encode(corpus, first);
  Ids second = {7};
  encoder.encode(corpus, second);
  EXPECT_GT(first.size(), 10'000U);
  EXPECT_EQ(Ids(second.begin() + 1, second.end()), first);
  EXPECT_EQ(first, encode(tokenizer, corpus));
}

TEST(Tokenizer, PlainTextNeverGivesASpecialToken) {
  const Tokenizer tokenizer = tiny({"<|endoftext|>", "<|bos|>"});
  EXPECT_EQ(tokenizer.decode(encode(tokenizer, "<|bos|> a<|endoftext|>")),
            "<|bos|> a<|endoftext|>");
  for (const TokenId id : encode(tokenizer, "<|bos|> a<|endoftext|>")) EXPECT_LT(id, 257U);
}

TEST(Tokenizer, KnowsItsSpecialTokensAndLengths) {
  const Tokenizer both = tiny({"<|endoftext|>", "<|bos|>"});
  EXPECT_EQ(both.vocab_size(), 259U);
  EXPECT_EQ(both.bos_id(), 258U);
  EXPECT_EQ(both.eos_id(), 257U);
  EXPECT_EQ(both.special_id("<|bos|>"), 258U);
  EXPECT_EQ(both.special_id("a"), std::nullopt);
  EXPECT_EQ(tiny().eos_id(), 257U);  // documents are told apart by the beginning of the next
  EXPECT_EQ(tiny({}).bos_id(), std::nullopt);
  EXPECT_EQ(both.token_bytes().size(), 259U);
  EXPECT_EQ(both.token_bytes()[200], 1U);
  EXPECT_EQ(both.token_bytes()[256], 2U);
  EXPECT_EQ(both.token_bytes()[257], 0U);
  EXPECT_EQ(both.decode(Ids{256, 258}), " a<|bos|>");
  test::expect_error(Fault::kData, {"token 259", "has 259 tokens"}, [&] {
    static_cast<void>(both.decode(Ids{1, 259}));
  });
}

TEST(Tokenizer, SavesWhatItLoaded) {
  const test::Folder folder;
  for (const std::string name : {"gpt2.json", "gpt4.json"}) {
    const auto original = Tokenizer::load(test::reference_path(name));
    original.save(folder.path(name));
    EXPECT_EQ(test::slurp(folder.path(name)), test::slurp(test::reference_path(name)));
    EXPECT_EQ(original.sha256(), sha256(test::slurp(folder.path(name))));

    // Written anew it is another file of the same tokenizer.
    const Tokenizer again("again", original.vocabulary(), original.pattern());
    again.save(folder.path("tokenizer.json"));
    const auto loaded = Tokenizer::load(folder.path("tokenizer.json"));
    EXPECT_EQ(loaded.sha256(), again.sha256());
    EXPECT_EQ(loaded.vocabulary().tokens, original.vocabulary().tokens);
    EXPECT_EQ(loaded.vocabulary().specials, original.vocabulary().specials);
    EXPECT_EQ(loaded.pattern(), original.pattern());
    expect_vectors(loaded, "vectors_" + original.name() + ".txt");
  }
}

TEST(Tokenizer, IsNamedAfterItsFileOrFolder) {
  const test::Folder folder;
  tiny().save(folder.path("prose.json"));
  EXPECT_EQ(Tokenizer::load(folder.path("prose.json")).name(), "prose");
  tiny().save(folder.path("tokenizer.json"));
  EXPECT_EQ(Tokenizer::load(folder.path("tokenizer.json")).name(),
            std::filesystem::path(folder.path()).filename());
}

TEST(Tokenizer, ReadsAndWritesGpt2sFiles) {
  const test::Folder folder;
  const auto original = Tokenizer::load(test::reference_path("gpt2.json"));
  original.save_gpt2(folder.path("vocab.bpe"), folder.path("encoder.json"));
  const auto loaded = Tokenizer::from_gpt2(folder.path("vocab.bpe"), folder.path("encoder.json"));
  EXPECT_EQ(loaded.vocabulary().tokens, original.vocabulary().tokens);
  EXPECT_EQ(loaded.vocabulary().specials, original.vocabulary().specials);
  expect_vectors(loaded, "vectors_gpt2.txt");

  test::expect_error(Fault::kUsage, {"tiny", "tokenizer.json"},
                     [&] { tiny().save_gpt2(folder.path("a"), folder.path("b")); });
  test::spill(folder.path("bad.bpe"), "#version: 0.2\na b\na  b\n");
  test::expect_error(Fault::kData, {"bad.bpe:3", R"("a  b")"}, [&] {
    Tokenizer::from_gpt2(folder.path("bad.bpe"), folder.path("encoder.json"));
  });
  test::spill(folder.path("bad.bpe"), "\xC4\xA0 qqq\n");
  test::expect_error(Fault::kData, {"bad.bpe:1", "\"qqq\" is not in the vocabulary"}, [&] {
    Tokenizer::from_gpt2(folder.path("bad.bpe"), folder.path("encoder.json"));
  });
  test::spill(folder.path("bad.json"), R"({"a": -1})");
  test::expect_error(Fault::kData, {"bad.json", "\"a\" has no id"}, [&] {
    Tokenizer::from_gpt2(folder.path("vocab.bpe"), folder.path("bad.json"));
  });
}

TEST(Tokenizer, ErrorsQuoteOnlyTheBeginningOfAFile) {
  const test::Folder folder;
  // GPT-2's two files, one given for the other: a megabyte in one line.
  const std::string ids = "{\"a\": 0, \"" + std::string(1 << 20, 'x') + "\": 1}";
  test::spill(folder.path("encoder.json"), ids);
  test::spill(folder.path("unclosed.json"), ids.substr(0, ids.size() / 2));
  test::spill(folder.path("long.json"), "{\"" + std::string(1 << 20, 'x') + "\": -1}");
  test::spill(folder.path("empty.bpe"), "");
  const auto message = [&](const char* merges, const char* json) {
    try {
      Tokenizer::from_gpt2(folder.path(merges), folder.path(json));
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  for (const auto& [merges, json] : {std::pair{"encoder.json", "encoder.json"},
                                     {"empty.bpe", "encoder.json"},
                                     {"empty.bpe", "unclosed.json"},
                                     {"empty.bpe", "long.json"}}) {
    const std::string said = message(merges, json);
    EXPECT_THAT(said, testing::HasSubstr(".json"));
    EXPECT_LT(said.size(), 500U) << merges << " " << json;
  }
}

TEST(Tokenizer, SaysWhichFileItCannotReadOrWrite) {
  const test::Folder folder;
  test::expect_error(Fault::kData, {"none.json", "no such file"},
                     [&] { Tokenizer::load(folder.path("none.json")); });
  test::expect_error(Fault::kData, {folder.path(), "is a folder"},
                     [&] { Tokenizer::load(folder.path()); });
  test::expect_error(Fault::kIo, {"none/t.json", "No such file"},
                     [&] { tiny().save(folder.path("none/t.json")); });
}

}  // namespace
}  // namespace anabranch
