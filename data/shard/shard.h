// One file of tokens: written by us (HDF5), or by others in formats that are as simple.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/hdf5/file.h"

namespace anabranch {

// Which tokenizer made the tokens.
struct TokenizerFacts {
  std::string name = {}, sha256 = {};  // empty: unknown (files of others)
  int64_t vocab_size = 0;              // ids are below it; 0: unknown
  int64_t bos_id = -1, eos_id = -1;

  bool operator==(const TokenizerFacts&) const = default;
};

// Bytes of tokens that one entry of block_crc32c covers.
inline constexpr int64_t kShardBlock = int64_t{1} << 20;
inline constexpr int64_t kShardVersion = 1;

// uint16 up to 65,536 ids, else uint32.
[[nodiscard]] Hdf5Type token_type(int64_t vocab_size);

// Writes a shard of whole documents; the file appears whole or not at all.
//
//   tokens            documents, each beginning with the token that the tokenizer begins them with
//   document_offsets  [documents + 1], 0 first and the number of tokens last
//
// The file holds both as data sets, block_crc32c, and attributes with the facts, the counts and the
// checksums of document_offsets and of all tokens. Throws io_error.
void write_shard(const std::string& path, const TokenizerFacts& tokenizer,
                 std::span<const uint32_t> tokens, std::span<const uint64_t> document_offsets);

// Reads one file of tokens by offset; serves any number of threads.
//
// Formats, told apart by the contents: our shards; HDF5 with a rank-1 integer data set `data`
// (Cerebras' corpus format); llm.c's .bin (256 int32 of header; GPT-2 or Llama 3 version).
class ShardReader {
 public:
  // Checks what can be checked without reading the tokens. Throws data_error.
  explicit ShardReader(const std::string& path);

  [[nodiscard]] const std::string& path() const { return file_->path(); }

  [[nodiscard]] int64_t tokens() const { return tokens_; }

  // -1 if the format does not say where documents begin.
  [[nodiscard]] int64_t documents() const { return documents_; }

  [[nodiscard]] const TokenizerFacts& tokenizer() const { return tokenizer_; }

  [[nodiscard]] Hdf5Type element() const { return element_; }

  // CRC32C of all tokens' bytes as the file states it; -1 if it does not.
  [[nodiscard]] int64_t stated_crc32c() const { return tokens_crc_; }

  // Where contents begin: everything before is names, shapes and attributes.
  [[nodiscard]] int64_t header_bytes() const { return header_bytes_; }

  // Widens `count` tokens from token `first` on. Ids that do not fit become -1.
  void read(int64_t first, int64_t count, int32_t* to) const;

  // [documents + 1]. Throws data_error if there are none, or they are not ascending.
  [[nodiscard]] std::vector<uint64_t> document_offsets() const;

  // Reads everything: checksums, ascending documents, ids below the vocabulary's size. Throws
  // data_error that names the file, and the block or the token.
  void verify() const;

 private:
  void open_ours(const Hdf5Reader& in);
  void open_cerebras(const Hdf5Reader& in);
  void open_llm_c();
  void verify_blocks() const;
  void verify_ids() const;

  std::unique_ptr<InputFile> file_;
  TokenizerFacts tokenizer_;
  Hdf5Type element_ = Hdf5Type::kU16;
  int64_t tokens_ = 0, documents_ = -1, offset_ = 0, header_bytes_ = 0;
  int64_t tokens_crc_ = -1, documents_crc_ = -1;
  int64_t documents_offset_ = 0, blocks_offset_ = -1;  // of the data sets; -1: no checksums
};

}  // namespace anabranch
