// A byte-level byte-pair tokenizer: what stands between text and token ids.
//
// On disk it is a Hugging Face tokenizer.json and nothing else; GPT-2's pair of files can be read
// and written. Every byte string encodes and decodes to itself: bytes that are not valid UTF-8 are
// taken one by one (see split.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/bpe.h"
#include "data/tokenizer/encoder.h"
#include "data/tokenizer/split.h"

namespace anabranch {

// Immutable; one object serves any number of threads.
class Tokenizer {
 public:
  // Makes a tokenizer and the tokenizer.json that describes it.
  //
  //   name        what shards and reports call it
  //   vocabulary  tokens, merges and special tokens
  //   pattern     how text is cut into pieces
  //
  // Throws data_error if the vocabulary is not whole (see Bpe) or two spellings collide.
  Tokenizer(const std::string& name, const Vocabulary& vocabulary, SplitPattern pattern);

  // Reads a byte-level BPE tokenizer.json.
  //
  // Its name is the file's without ".json", or the folder's if the file is called tokenizer.json.
  // Taken are the split patterns of split.h, whether as ByteLevel or as Split and ByteLevel. What
  // concerns whole inputs (truncation, padding, post_processor) has no effect here; what would
  // change the ids of plain text (a normalizer, a prefix space, dropout, added tokens that are not
  // special, ...) is refused. Throws io_error, or data_error naming the file and the field.
  static Tokenizer load(const std::string& path);

  // As `load`, from the text of the file; `source` stands for its name in errors.
  static Tokenizer from_json(std::string name, std::string json, const std::string& source);

  // Reads GPT-2's vocab.bpe (merges) and encoder.json (ids). Entries of encoder.json that are
  // neither a byte nor the result of a merge are special tokens. Throws io_error or data_error.
  static Tokenizer from_gpt2(const std::string& merges_path, const std::string& ids_path);

  // Writes tokenizer.json, the very bytes that were loaded; the file appears whole or not at all.
  // Throws io_error.
  void save(const std::string& path) const;

  // Writes GPT-2's two files. Throws usage_error if the pattern is not GPT-2's, or io_error.
  void save_gpt2(const std::string& merges_path, const std::string& ids_path) const;

  [[nodiscard]] const std::string& name() const { return name_; }

  // SHA-256 of the bytes of tokenizer.json, as loaded or as `save` writes them.
  [[nodiscard]] const std::string& sha256() const { return sha256_; }

  [[nodiscard]] SplitPattern pattern() const { return splitter_.pattern(); }

  // Ids are 0 .. vocab_size() - 1, special tokens included.
  [[nodiscard]] std::size_t vocab_size() const { return vocabulary_.tokens.size(); }

  [[nodiscard]] const Vocabulary& vocabulary() const { return vocabulary_; }

  // The id of a special token by its text.
  [[nodiscard]] std::optional<TokenId> special_id(std::string_view text) const;

  // The token that begins a document: the first there is of <|bos|>, <|begin_of_text|>,
  // <|startoftext|>, <s>, <|endoftext|>.
  [[nodiscard]] std::optional<TokenId> bos_id() const;

  // The token that ends a document: the first there is of <|endoftext|>, <|eos|>, <|end_of_text|>,
  // </s>; without any, the one that begins the next.
  [[nodiscard]] std::optional<TokenId> eos_id() const;

  // An encoder for one thread, the fast way for many texts.
  [[nodiscard]] Encoder encoder() const { return {bpe_, splitter_}; }

  // Appends the ids of `text` as ordinary text: never a special token. For single texts.
  void encode_ordinary(std::string_view text, std::vector<TokenId>& out) const;

  // The bytes of the tokens, joined; a special token gives its text. Throws data_error for an id
  // outside the vocabulary.
  [[nodiscard]] std::string decode(std::span<const TokenId> ids) const;

  // Bytes by id for bits per byte: the length of the token, 0 for special tokens.
  [[nodiscard]] std::span<const std::uint32_t> token_bytes() const { return token_bytes_; }

 private:
  Tokenizer(std::string name, std::string json, const Vocabulary& vocabulary, SplitPattern pattern,
            const std::string& source);

  std::string name_;
  std::string json_;
  std::string sha256_;
  Vocabulary vocabulary_;
  Splitter splitter_;
  std::shared_ptr<const Bpe> bpe_;
  std::vector<std::uint32_t> token_bytes_;
};

}  // namespace anabranch
