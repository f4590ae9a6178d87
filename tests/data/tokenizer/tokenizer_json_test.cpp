#include "data/tokenizer/tokenizer_json.h"

#include <random>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "data/tokenizer/tokenizer.h"
#include "tests/data/tokenizer/vectors.h"

namespace anabranch {
namespace {

using nlohmann::json;

Tokenizer from(const json& file) { return Tokenizer::from_json("t", file.dump(), "t.json"); }

class TokenizerJson : public testing::Test {
 protected:
  // Checks that the file is refused, naming itself and all of `parts`.
  static void refuse(const json& file, std::initializer_list<std::string> parts) {
    test::expect_error(Fault::kData, {"t.json: "}, [&] { from(file); });
    test::expect_error(Fault::kData, parts, [&] { from(file); });
  }

  const json gpt2_ = json::parse(test::slurp(test::reference_path("gpt2.json")));
  const json gpt4_ = json::parse(test::slurp(test::reference_path("gpt4.json")));
};

TEST_F(TokenizerJson, ReadsBothSpellingsOfMerges) {
  json strings = gpt2_;
  for (json& merge : strings["model"]["merges"]) {
    ASSERT_TRUE(merge.is_array());
    merge = merge[0].get<std::string>() + " " + merge[1].get<std::string>();
  }
  const Tokenizer a = from(strings);
  const Tokenizer b = from(gpt2_);
  ASSERT_EQ(a.vocabulary().merges.size(), b.vocabulary().merges.size());
  for (std::size_t i = 0; i < b.vocabulary().merges.size(); ++i) {
    EXPECT_EQ(a.vocabulary().merges[i].left, b.vocabulary().merges[i].left);
    EXPECT_EQ(a.vocabulary().merges[i].right, b.vocabulary().merges[i].right);
  }
}

TEST_F(TokenizerJson, ReadsSpecialTokensOutsideTheVocabulary) {
  json file = gpt2_;
  const std::size_t n = file["model"]["vocab"].size();
  file["added_tokens"].push_back({{"id", n}, {"content", "<my token>"}, {"special", true}});
  const Tokenizer tokenizer = from(file);
  EXPECT_EQ(tokenizer.special_id("<my token>"), n);
  EXPECT_EQ(tokenizer.vocab_size(), n + 1);
}

TEST_F(TokenizerJson, ReadsGpt2sPatternAsASplitToo) {
  json file = gpt4_;
  json& split = file["pre_tokenizer"]["pretokenizers"][0];
  split["pattern"]["Regex"] = split_regex(SplitPattern::kGpt2);
  EXPECT_EQ(from(file).pattern(), SplitPattern::kGpt2);
  split["behavior"] = "Removed";
  split["invert"] = true;
  EXPECT_EQ(from(file).pattern(), SplitPattern::kGpt2);
}

TEST_F(TokenizerJson, RefusesWhatIsNoJson) {
  const auto refuse_text = [](const std::string& text) {
    test::expect_error(Fault::kData, {"t.json: "},
                       [&] { Tokenizer::from_json("t", text, "t.json"); });
  };
  refuse_text("");
  refuse_text("{");
  refuse_text("[1, 2]");
  refuse_text("null");
  refuse_text(std::string(100'000, '['));
  refuse_text("{\"model\": \"\xFF\"}");
  const std::string whole = gpt2_.dump();
  for (std::size_t size = 1; size < whole.size(); size += 977) refuse_text(whole.substr(0, size));
}

TEST_F(TokenizerJson, RefusesMissingAndWrongFields) {
  for (const char* key : {"model", "pre_tokenizer"}) {
    json file = gpt2_;
    file.erase(key);
    refuse(file, {key});
  }
  for (const char* key : {"vocab", "merges"}) {
    json file = gpt2_;
    file["model"].erase(key);
    refuse(file, {std::string("model.") + key, "found nothing"});
    file["model"][key] = 3;
    refuse(file, {std::string("model.") + key, "found 3"});
  }
  json file = gpt2_;
  file["added_tokens"][1].erase("id");
  refuse(file, {"added_tokens[1].id", "found nothing"});
  file = gpt2_;
  file["added_tokens"] = "none";
  refuse(file, {"added_tokens", "\"none\"", "an array"});
}

// Each of these would change the ids of plain text.
TEST_F(TokenizerJson, RefusesWhatItDoesNotDo) {
  const auto with = [&](const char* pointer, const json& value) {
    json file = gpt4_;
    file[json::json_pointer(pointer)] = value;
    return file;
  };
  refuse(with("/model/type", "WordPiece"), {"model.type", "WordPiece"});
  refuse(with("/model/dropout", 0.1), {"model.dropout", "0.1"});
  refuse(with("/model/byte_fallback", true), {"model.byte_fallback"});
  refuse(with("/model/end_of_word_suffix", "</w>"), {"model.end_of_word_suffix"});
  refuse(with("/normalizer", {{"type", "NFC"}}), {"normalizer", "NFC"});
  refuse(with("/added_tokens/0/special", false), {"added_tokens[0].special"});
  refuse(with("/pre_tokenizer", {{"type", "Whitespace"}}), {"pre_tokenizer.type", "Whitespace"});
  refuse(with("/pre_tokenizer/pretokenizers/0/pattern/Regex", "x+"),
         {"pre_tokenizer.pretokenizers[0].pattern.Regex", "x+"});
  refuse(with("/pre_tokenizer/pretokenizers/0/behavior", "Removed"), {"behavior"});
  refuse(with("/pre_tokenizer/pretokenizers/1/add_prefix_space", true), {"add_prefix_space"});
  refuse(with("/pre_tokenizer/pretokenizers/1/use_regex", true), {"use_regex"});
  json file = gpt2_;
  file["pre_tokenizer"].erase("add_prefix_space");  // true where it is absent
  refuse(file, {"pre_tokenizer.add_prefix_space"});
}

TEST_F(TokenizerJson, RefusesABrokenVocabulary) {
  const auto change = [&](auto&& edit) {
    json file = gpt2_;
    edit(file["model"]["vocab"], file["model"]["merges"]);
    return file;
  };
  refuse(change([](json& vocab, json&) { vocab["!"] = 700; }), {"id 2"});
  refuse(change([](json& vocab, json&) { vocab["!"] = vocab["#"]; }), {"id 2"});
  refuse(change([](json& vocab, json&) { vocab["new"] = vocab["#"]; }), {"id 4 is given to"});
  refuse(change([](json& vocab, json&) { vocab["new"] = 4'000'000'000U; }), {"4000000000"});
  refuse(change([](json& vocab, json&) { vocab["new"] = 1e30; }), {"model.vocab", "an id"});
  refuse(change([](json& vocab, json&) { vocab["new"] = -1; }), {"model.vocab", "-1"});
  refuse(change([](json& vocab, json&) { vocab["a b"] = vocab.size(); }), {R"("a b")"});
  refuse(change([](json&, json& merges) { merges[3] = "ab"; }), {"model.merges[3]", "one space"});
  refuse(change([](json&, json& merges) { merges[3] = "a b c"; }), {"model.merges[3]"});
  refuse(change([](json&, json& merges) { merges[3] = {"a"}; }), {"model.merges[3]"});
  refuse(change([](json&, json& merges) {
           merges[3] = {"a", "qqq"};
         }),
         {"model.merges[3]", R"("qqq" is not in the vocabulary)"});
  refuse(change([](json&, json& merges) { merges[3] = merges[2]; }), {"merge 3", "repeats"});
  refuse(change([](json&, json& merges) { merges[3] = {"!", "!"}; }), {R"(leads to "!!")"});
  json file = gpt2_;
  file["added_tokens"][0]["content"] = "";
  refuse(file, {"added_tokens[0]", "no text"});
  file = gpt2_;
  file["added_tokens"][0]["id"] = 1;
  refuse(file, {"added_tokens[0]", "both the ids"});
}

// Damage anywhere gives a tokenizer or an Error, never anything else.
TEST_F(TokenizerJson, SurvivesDamage) {
  const std::string whole = gpt4_.dump();
  std::mt19937 rng(11);
  int refused = 0;
  for (int i = 0; i < 60; ++i) {
    std::string text = whole;
    for (int k = 0; k < 3; ++k) text[rng() % text.size()] = "\"[]{}:,0 \x80"[rng() % 10];
    try {
      Tokenizer::from_json("t", text, "t.json");
    } catch (const Error& error) {
      EXPECT_EQ(error.fault(), Fault::kData) << error.what();
      ++refused;
    }
  }
  EXPECT_GT(refused, 30);
}

TEST_F(TokenizerJson, RefusesToWriteWhatNobodyCouldRead) {
  Vocabulary vocabulary = from(gpt2_).vocabulary();
  vocabulary.tokens[0] = "\xFF";
  test::expect_error(Fault::kData, {"tokenizer.json"},
                     [&] { write_tokenizer_json(vocabulary, SplitPattern::kGpt2); });
  vocabulary.tokens[0] = "\xC4\xA0";  // how a space is spelled
  test::expect_error(Fault::kData, {"both spelled"},
                     [&] { write_tokenizer_json(vocabulary, SplitPattern::kGpt2); });
}

}  // namespace
}  // namespace anabranch
