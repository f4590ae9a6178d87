#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "core/base/crc32c.h"
#include "core/base/error.h"
#include "data/shard/shard.h"

namespace anabranch {
namespace {

constexpr int64_t kReadTokens = int64_t{1} << 18;

bool is_hdf5(const InputFile& file) {
  constexpr std::array<unsigned char, 8> kSignature{0x89, 'H', 'D', 'F', '\r', '\n', 0x1a, '\n'};
  std::array<unsigned char, 8> begin{};
  if (file.size() < std::ssize(begin)) return false;
  file.read(0, begin.data(), begin.size());
  return begin == kSignature;
}

// An id as we hand it out; -1 for what no vocabulary has.
template <class T>
int32_t widen(T id) {
  if constexpr (sizeof(T) <= 2) return int32_t{id};
  const bool fits = id >= 0 && static_cast<uint64_t>(id) <=
                                   static_cast<uint64_t>(std::numeric_limits<int32_t>::max());
  return fits ? static_cast<int32_t>(id) : -1;
}

template <class T>
void widen_all(const std::vector<char>& raw, int64_t count, int32_t* to) {
  for (int64_t i = 0; i < count; ++i) {
    T id;
    std::memcpy(&id, raw.data() + i * std::ssize(std::array<char, sizeof(T)>{}), sizeof(T));
    to[i] = widen(id);
  }
}

}  // namespace

ShardReader::ShardReader(const std::string& path) : file_(std::make_unique<InputFile>(path)) {
  if (file_->size() == 0) throw data_error(path, " is empty; expected a shard of tokens");
  if (!is_hdf5(*file_)) {
    open_llm_c();
    return;
  }
  const Hdf5Reader in(path);
  if (in.find("tokens") == nullptr && in.find("data") != nullptr) {
    open_cerebras(in);
  } else {
    open_ours(in);
  }
}

void ShardReader::open_ours(const Hdf5Reader& in) {
  const int64_t version = in.int_attribute("format_version");
  if (version != kShardVersion) {
    throw data_error(path(), " has shard format ", version, "; this build reads ", kShardVersion);
  }
  tokenizer_ = {in.string_attribute("tokenizer_name"), in.string_attribute("tokenizer_sha256"),
                in.int_attribute("vocab_size"), in.int_attribute("bos_id"),
                in.int_attribute("eos_id")};
  element_ = token_type(tokenizer_.vocab_size);
  const Hdf5DataSet& tokens = in.require("tokens", element_, 1);
  const Hdf5DataSet& documents = in.require("document_offsets", Hdf5Type::kU64, 1);
  const Hdf5DataSet& blocks = in.require("block_crc32c", Hdf5Type::kU32, 1);
  tokens_ = tokens.count();
  documents_ = documents.count() - 1;
  tokens_crc_ = in.int_attribute("tokens_crc32c");
  documents_crc_ = in.int_attribute("document_offsets_crc32c");
  const int64_t wanted = (tokens.bytes() + kShardBlock - 1) / kShardBlock;
  if (in.int_attribute("token_count") != tokens_ || in.int_attribute("document_count") < 0 ||
      in.int_attribute("document_count") != documents_ || blocks.count() != wanted ||
      in.int_attribute("block_bytes") != kShardBlock) {
    throw data_error(path(), ": its counts contradict each other: it is damaged; build it again");
  }
  offset_ = tokens.offset;
  documents_offset_ = documents.offset;
  blocks_offset_ = blocks.offset;
  header_bytes_ = in.file_bytes();
  for (const Hdf5DataSet& data_set : in.data_sets()) {
    if (data_set.bytes() > 0) header_bytes_ = std::min(header_bytes_, data_set.offset);
  }
}

void ShardReader::open_cerebras(const Hdf5Reader& in) {
  const Hdf5DataSet& data = *in.find("data");
  if (data.shape.size() != 1) {
    throw data_error(path(), ": data has ", data.shape.size(),
                     " axes; of this format we read the corpus form with one (samples that are ",
                     "already cut and masked have three)");
  }
  const bool integers = data.type == Hdf5Type::kU16 || data.type == Hdf5Type::kU32 ||
                        data.type == Hdf5Type::kI32 || data.type == Hdf5Type::kI64;
  if (!integers) throw data_error(path(), ": data holds ", name_of(data.type), "; expected ids");
  element_ = data.type;
  offset_ = in.require("data", data.type, 1).offset;
  tokens_ = data.count();
  header_bytes_ = offset_;
}

void ShardReader::open_llm_c() {
  constexpr int64_t kHeader = 1024;
  std::array<int32_t, 3> header{};
  if (file_->size() >= kHeader) file_->read(0, header.data(), sizeof(header));
  const bool gpt2 = header[0] == 20240520 && header[1] == 1;
  const bool llama3 = header[0] == 20240801 && header[1] == 7;
  if (!gpt2 && !llama3) {
    throw data_error(path(), " is neither HDF5 nor a .bin file of llm.c (magic ", header[0],
                     ", version ", header[1], "); expected 20240520, 1 or 20240801, 7");
  }
  element_ = gpt2 ? Hdf5Type::kU16 : Hdf5Type::kU32;
  tokens_ = header[2];
  offset_ = header_bytes_ = kHeader;
  const int64_t there = (file_->size() - kHeader) / size_of(element_);
  if (tokens_ < 0 || tokens_ > there) {
    throw data_error(path(), " says that it has ", tokens_, " tokens, but only ", there,
                     " fit into it: it is truncated or damaged");
  }
}

void ShardReader::read(int64_t first, int64_t count, int32_t* to) const {
  AB_CHECK(first >= 0 && count >= 0 && first <= tokens_ && count <= tokens_ - first, path(),
           ": tokens ", first, " to ", first + count, " of ", tokens_);
  const int64_t size = size_of(element_);
  std::vector<char> raw(static_cast<size_t>(std::min(count, kReadTokens) * size));
  while (count > 0) {
    const int64_t part = std::min(count, kReadTokens);
    file_->read(offset_ + first * size, raw.data(), static_cast<size_t>(part * size));
    switch (element_) {
      case Hdf5Type::kU16:
        widen_all<uint16_t>(raw, part, to);
        break;
      case Hdf5Type::kU32:
        widen_all<uint32_t>(raw, part, to);
        break;
      case Hdf5Type::kI32:
        widen_all<int32_t>(raw, part, to);
        break;
      default:
        widen_all<int64_t>(raw, part, to);
    }
    first += part;
    to += part;
    count -= part;
  }
}

std::vector<uint64_t> ShardReader::document_offsets() const {
  if (documents_ < 0) {
    throw data_error(path(), " does not say where its documents begin; build shards from text, or ",
                     "use packing: windows without a document mask");
  }
  std::vector<uint64_t> offsets(static_cast<size_t>(documents_ + 1));
  file_->read(documents_offset_, offsets.data(), offsets.size() * sizeof(uint64_t));
  if (crc32c(offsets.data(), offsets.size() * sizeof(uint64_t)) != documents_crc_) {
    throw data_error(path(), ": document_offsets has a wrong checksum: the file is damaged");
  }
  const bool whole = offsets.front() == 0 && offsets.back() == static_cast<uint64_t>(tokens_) &&
                     std::is_sorted(offsets.begin(), offsets.end());
  if (!whole) throw data_error(path(), ": document_offsets is not ascending from 0 to ", tokens_);
  return offsets;
}

void ShardReader::verify() const {
  if (blocks_offset_ >= 0) verify_blocks();
  if (documents_ >= 0) (void)document_offsets();
  verify_ids();
}

void ShardReader::verify_blocks() const {
  const int64_t bytes = tokens_ * size_of(element_);
  std::vector<uint32_t> stated(static_cast<size_t>((bytes + kShardBlock - 1) / kShardBlock));
  file_->read(blocks_offset_, stated.data(), stated.size() * sizeof(uint32_t));
  std::vector<char> block(static_cast<size_t>(kShardBlock));
  uint32_t all = 0;
  for (size_t i = 0; i < stated.size(); ++i) {
    const int64_t begin = static_cast<int64_t>(i) * kShardBlock;
    const auto part = static_cast<size_t>(std::min(kShardBlock, bytes - begin));
    file_->read(offset_ + begin, block.data(), part);
    all = crc32c(block.data(), part, all);
    if (crc32c(block.data(), part) != stated[i]) {
      throw data_error(
          path(), ": block ", i, " of the tokens (bytes ", offset_ + begin, " to ",
          offset_ + begin + static_cast<int64_t>(part),
          " of the file) has a wrong checksum: the file is damaged; copy it again, or ",
          "build it again");
    }
  }
  if (all != tokens_crc_) throw data_error(path(), ": tokens_crc32c is wrong: damaged");
}

void ShardReader::verify_ids() const {
  if (tokenizer_.vocab_size <= 0) return;
  std::vector<int32_t> part(static_cast<size_t>(std::min(tokens_, kReadTokens)));
  for (int64_t first = 0; first < tokens_; first += kReadTokens) {
    const int64_t count = std::min(kReadTokens, tokens_ - first);
    read(first, count, part.data());
    for (int64_t i = 0; i < count; ++i) {
      const int32_t id = part[static_cast<size_t>(i)];
      if (id >= 0 && id < tokenizer_.vocab_size) continue;
      throw data_error(path(), ": token ", first + i, " is ", id, ", but the vocabulary has ",
                       tokenizer_.vocab_size, " entries");
    }
  }
}

}  // namespace anabranch
