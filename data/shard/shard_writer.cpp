#include <algorithm>
#include <cstring>

#include "core/base/crc32c.h"
#include "core/base/error.h"
#include "data/shard/shard.h"

namespace anabranch {
namespace {

// The tokens as they lie in the file.
std::vector<std::byte> pack(std::span<const uint32_t> tokens, Hdf5Type type) {
  const auto size = static_cast<size_t>(size_of(type));
  std::vector<std::byte> bytes(tokens.size() * size);
  if (type == Hdf5Type::kU32) {
    if (!tokens.empty()) std::memcpy(bytes.data(), tokens.data(), bytes.size());
    return bytes;
  }
  for (size_t i = 0; i < tokens.size(); ++i) {
    const auto narrow = static_cast<uint16_t>(tokens[i]);
    std::memcpy(bytes.data() + i * size, &narrow, size);
  }
  return bytes;
}

std::vector<uint32_t> block_checksums(const std::vector<std::byte>& bytes) {
  std::vector<uint32_t> checksums;
  for (size_t at = 0; at < bytes.size(); at += kShardBlock) {
    checksums.push_back(
        crc32c(bytes.data() + at, std::min<size_t>(kShardBlock, bytes.size() - at)));
  }
  return checksums;
}

}  // namespace

Hdf5Type token_type(int64_t vocab_size) {
  return vocab_size <= 65536 ? Hdf5Type::kU16 : Hdf5Type::kU32;
}

void write_shard(const std::string& path, const TokenizerFacts& tokenizer,
                 std::span<const uint32_t> tokens, std::span<const uint64_t> document_offsets) {
  AB_CHECK(!document_offsets.empty() && document_offsets.front() == 0 &&
               document_offsets.back() == tokens.size(),
           path, ": the documents do not cover the ", tokens.size(), " tokens");
  for (const uint32_t id : tokens) {
    AB_CHECK(static_cast<int64_t>(id) < tokenizer.vocab_size, path, ": token ", id,
             " of a vocabulary of ", tokenizer.vocab_size);
  }
  const Hdf5Type type = token_type(tokenizer.vocab_size);
  const std::vector<std::byte> bytes = pack(tokens, type);
  const std::vector<uint32_t> checksums = block_checksums(bytes);
  const size_t offset_bytes = document_offsets.size_bytes();

  Hdf5Writer out(path);
  out.set("format_version", kShardVersion);
  out.set("tokenizer_name", tokenizer.name);
  out.set("tokenizer_sha256", tokenizer.sha256);
  out.set("vocab_size", tokenizer.vocab_size);
  out.set("bos_id", tokenizer.bos_id);
  out.set("eos_id", tokenizer.eos_id);
  out.set("token_count", std::ssize(tokens));
  out.set("document_count", std::ssize(document_offsets) - 1);
  out.set("block_bytes", kShardBlock);
  out.set("tokens_crc32c", int64_t{crc32c(bytes.data(), bytes.size())});
  out.set("document_offsets_crc32c", int64_t{crc32c(document_offsets.data(), offset_bytes)});
  out.add("tokens", type, {std::ssize(tokens)});
  out.add("document_offsets", Hdf5Type::kU64, {std::ssize(document_offsets)});
  out.add("block_crc32c", Hdf5Type::kU32, {std::ssize(checksums)});
  out.lay_out();
  out.write("tokens", bytes.data(), std::ssize(bytes));
  out.write("document_offsets", document_offsets.data(), static_cast<int64_t>(offset_bytes));
  out.write("block_crc32c", checksums.data(), std::ssize(checksums) * 4);
  out.commit();
}

}  // namespace anabranch
