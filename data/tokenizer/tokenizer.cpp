#include "data/tokenizer/tokenizer.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <utility>

#include "core/base/error.h"
#include "core/base/read_file.h"
#include "core/base/sha256.h"
#include "data/hdf5/raw_file.h"
#include "data/tokenizer/gpt2_files.h"
#include "data/tokenizer/tokenizer_json.h"

namespace anabranch {
namespace {

std::string name_of(const std::string& path) {
  const std::filesystem::path file = std::filesystem::absolute(path);
  if (file.filename() != "tokenizer.json") return file.stem().string();
  return file.parent_path().filename().string();
}

std::optional<TokenId> first_special(const Tokenizer& tokenizer,
                                     std::span<const std::string_view> texts) {
  for (const std::string_view text : texts) {
    if (const auto id = tokenizer.special_id(text)) return id;
  }
  return std::nullopt;
}

}  // namespace

Tokenizer::Tokenizer(std::string name, std::string json, const Vocabulary& vocabulary,
                     SplitPattern pattern, const std::string& source)
    : name_(std::move(name)),
      json_(std::move(json)),
      sha256_(anabranch::sha256(json_)),
      vocabulary_(vocabulary),
      splitter_(pattern),
      bpe_(std::make_shared<const Bpe>(vocabulary_, source)) {
  for (const std::string& token : vocabulary_.tokens) {
    token_bytes_.push_back(static_cast<std::uint32_t>(token.size()));
  }
  for (const TokenId id : vocabulary_.specials) token_bytes_[id] = 0;
}

Tokenizer::Tokenizer(const std::string& name, const Vocabulary& vocabulary, SplitPattern pattern)
    : Tokenizer(name, write_tokenizer_json(vocabulary, pattern), vocabulary, pattern,
                "tokenizer " + name) {}

Tokenizer Tokenizer::from_json(std::string name, std::string json, const std::string& source) {
  const ParsedTokenizer parsed = parse_tokenizer_json(json, source);
  return {std::move(name), std::move(json), parsed.vocabulary, parsed.pattern, source};
}

Tokenizer Tokenizer::load(const std::string& path) {
  return from_json(name_of(path), read_file(path), path);
}

Tokenizer Tokenizer::from_gpt2(const std::string& merges_path, const std::string& ids_path) {
  const Vocabulary vocabulary =
      parse_gpt2(read_file(merges_path), merges_path, read_file(ids_path), ids_path);
  std::string json = write_tokenizer_json(vocabulary, SplitPattern::kGpt2);
  return {"gpt2", std::move(json), vocabulary, SplitPattern::kGpt2, ids_path};
}

void Tokenizer::save(const std::string& path) const { write_atomically(path, json_); }

void Tokenizer::save_gpt2(const std::string& merges_path, const std::string& ids_path) const {
  if (pattern() != SplitPattern::kGpt2) {
    throw usage_error("tokenizer ", name_, " does not cut text as GPT-2 does, which its files ",
                      "cannot say; keep it as a tokenizer.json");
  }
  write_atomically(merges_path, write_gpt2_merges(vocabulary_));
  write_atomically(ids_path, write_gpt2_ids(vocabulary_));
}

std::optional<TokenId> Tokenizer::special_id(std::string_view text) const {
  const auto found = std::find_if(vocabulary_.specials.begin(), vocabulary_.specials.end(),
                                  [&](TokenId id) { return vocabulary_.tokens[id] == text; });
  if (found == vocabulary_.specials.end()) return std::nullopt;
  return *found;
}

std::optional<TokenId> Tokenizer::bos_id() const {
  constexpr std::array<std::string_view, 5> kTexts = {"<|bos|>", "<|begin_of_text|>",
                                                      "<|startoftext|>", "<s>", "<|endoftext|>"};
  return first_special(*this, kTexts);
}

std::optional<TokenId> Tokenizer::eos_id() const {
  constexpr std::array<std::string_view, 4> kTexts = {"<|endoftext|>", "<|eos|>", "<|end_of_text|>",
                                                      "</s>"};
  const auto id = first_special(*this, kTexts);
  return id ? id : bos_id();
}

void Tokenizer::encode_ordinary(std::string_view text, std::vector<TokenId>& out) const {
  Bpe::Scratch scratch;
  splitter_.for_each(text, [&](std::string_view piece) { bpe_->encode(piece, scratch, out); });
}

std::string Tokenizer::decode(std::span<const TokenId> ids) const {
  std::string out;
  for (const TokenId id : ids) {
    if (id >= vocab_size()) {
      throw data_error("token ", id, " does not exist: tokenizer ", name_, " has ", vocab_size(),
                       " tokens");
    }
    out += vocabulary_.tokens[id];
  }
  return out;
}

}  // namespace anabranch
