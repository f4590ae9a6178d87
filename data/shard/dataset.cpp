#include "data/shard/dataset.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include <nlohmann/json.hpp>

#include "core/base/crc32c.h"
#include "core/base/error.h"
#include "core/base/quote.h"
#include "core/base/sha256.h"
#include "data/hdf5/raw_file.h"

namespace anabranch {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

std::string read_text(const std::string& path) {
  const InputFile file(path);
  std::string text(static_cast<size_t>(file.size()), '\0');
  file.read(0, text.data(), text.size());
  return text;
}

uint32_t header_checksum(const std::string& path, int64_t bytes) {
  const InputFile file(path);
  std::vector<char> header(static_cast<size_t>(bytes));
  file.read(0, header.data(), header.size());
  return crc32c(header.data(), header.size());
}

Json describe(const std::string& folder, const std::string& name) {
  const std::string path = (fs::path(folder) / name).string();
  const ShardReader shard(path);
  return {{"file", name},
          {"bytes", fs::file_size(path)},
          {"tokens", shard.tokens()},
          {"documents", shard.documents()},
          {"tokens_crc32c", shard.stated_crc32c()},
          {"header_bytes", shard.header_bytes()},
          {"header_crc32c", header_checksum(path, shard.header_bytes())}};
}

// Opens a file after what dataset.json says about it: a damaged header never gets to HDF5.
ShardReader open_listed(const fs::path& folder, const Json& entry, const TokenizerFacts& wanted) {
  const std::string path = (folder / entry.at("file").get<std::string>()).string();
  const InputFile file(path);
  const auto size = entry.at("bytes").get<int64_t>();
  const auto header_bytes = entry.at("header_bytes").get<int64_t>();
  if (file.size() != size) {
    throw data_error(path, " has ", file.size(), " bytes; dataset.json says ", size,
                     ": it is truncated or another file");
  }
  if (header_bytes < 0 || header_bytes > size ||
      header_checksum(path, header_bytes) != entry.at("header_crc32c").get<uint32_t>()) {
    throw data_error(path, ": its first ", header_bytes,
                     " bytes have a wrong checksum: the file is damaged or another one");
  }
  ShardReader shard(path);
  if (shard.tokenizer() != wanted) {
    throw data_error(path, " was made with tokenizer '", shard.tokenizer().name, "' (SHA-256 ",
                     shard.tokenizer().sha256, "); dataset.json says '", wanted.name, "' (",
                     wanted.sha256, ")");
  }
  if (shard.tokens() != entry.at("tokens").get<int64_t>() ||
      shard.documents() != entry.at("documents").get<int64_t>() ||
      shard.stated_crc32c() != entry.at("tokens_crc32c").get<int64_t>()) {
    throw data_error(path, " is not the file that dataset.json describes");
  }
  return shard;
}

TokenStream open_split(const fs::path& folder, const Json& entries, const TokenizerFacts& wanted) {
  std::vector<ShardReader> shards;
  for (const Json& entry : entries) shards.push_back(open_listed(folder, entry, wanted));
  return TokenStream(std::move(shards));
}

Json facts_json(const TokenizerFacts& t) {
  return {{"name", t.name},
          {"sha256", t.sha256},
          {"vocab_size", t.vocab_size},
          {"bos_id", t.bos_id},
          {"eos_id", t.eos_id}};
}

TokenizerFacts facts_of(const Json& json) {
  return {json.at("name").get<std::string>(), json.at("sha256").get<std::string>(),
          json.at("vocab_size").get<int64_t>(), json.at("bos_id").get<int64_t>(),
          json.at("eos_id").get<int64_t>()};
}

// Over what decides which tokens a position stands for, not over names of files.
std::string fingerprint_of(const Json& tokenizer, const Json& sources) {
  Sha256 hash;
  hash.update(tokenizer.dump());
  for (const Json& source : sources) {
    hash.update(source.at("name").dump());
    for (const char* split : {"train", "val"}) {
      hash.update(split);
      for (const Json& file : source.at(split)) {
        hash.update(
            Json({file.at("tokens"), file.at("documents"), file.at("tokens_crc32c")}).dump());
      }
    }
  }
  return hash.finish();
}

void check_tokenizer(const std::string& path, const TokenizerFacts& wanted) {
  const std::string there = sha256(read_text(path));
  if (there == wanted.sha256) return;
  throw data_error(path, " has SHA-256 ", there, "; the shards were made with '", wanted.name,
                   "', ", wanted.sha256);
}

}  // namespace

void write_dataset_json(const std::string& folder, const TokenizerFacts& tokenizer,
                        const std::vector<SourceRecord>& sources) {
  Json list = Json::array();
  for (const SourceRecord& source : sources) {
    const std::string inside = (fs::path(folder) / source.folder).string();
    Json train = Json::array(), val = Json::array();
    for (const std::string& name : source.train) train.push_back(describe(inside, name));
    for (const std::string& name : source.val) val.push_back(describe(inside, name));
    list.push_back({{"name", source.name},
                    {"folder", source.folder},
                    {"weight", source.weight},
                    {"text_bytes", source.text_bytes},
                    {"train_words", source.train_words},
                    {"val_words", source.val_words},
                    {"empty_documents", source.empty_documents},
                    {"invalid_utf8_documents", source.invalid_utf8_documents},
                    {"train", std::move(train)},
                    {"val", std::move(val)}});
  }
  const Json facts = facts_json(tokenizer);
  const Json all = {{"format_version", kShardVersion},
                    {"fingerprint", fingerprint_of(facts, list)},
                    {"tokenizer", facts},
                    {"sources", std::move(list)}};
  write_atomically((fs::path(folder) / "dataset.json").string(), all.dump(2) + "\n");
}

Dataset Dataset::open(const std::string& folder) {
  const std::string path = (fs::path(folder) / "dataset.json").string();
  if (!fs::exists(path)) {
    throw data_error(folder, " has no dataset.json; expected a folder made by: anabranch shard ",
                     "build");
  }
  Dataset dataset;
  dataset.path_ = folder;
  dataset.tokenizer_path_ = (fs::path(folder) / "tokenizer.json").string();
  try {
    const Json all = Json::parse(read_text(path));
    const auto version = all.at("format_version").get<int64_t>();
    if (version != kShardVersion) {
      throw data_error(path, ": format ", version, "; this build reads ", kShardVersion);
    }
    dataset.tokenizer_ = facts_of(all.at("tokenizer"));
    dataset.fingerprint_ = all.at("fingerprint").get<std::string>();
    if (dataset.fingerprint_ != fingerprint_of(all.at("tokenizer"), all.at("sources"))) {
      throw data_error(path, ": the fingerprint does not fit the contents: it was edited or is ",
                       "damaged");
    }
    check_tokenizer(dataset.tokenizer_path_, dataset.tokenizer_);
    for (const Json& source : all.at("sources")) {
      const auto below = source.at("folder").get<std::string>();
      const fs::path inside = below == "." ? fs::path(folder) : fs::path(folder) / below;
      DataSource& to = dataset.sources_.emplace_back();
      to.name = source.at("name").get<std::string>();
      to.folder = inside.string();
      to.weight = source.at("weight").get<double>();
      to.train_words = source.value("train_words", int64_t{-1});
      to.val_words = source.value("val_words", int64_t{-1});
      to.train = open_split(inside, source.at("train"), dataset.tokenizer_);
      to.val = open_split(inside, source.at("val"), dataset.tokenizer_);
    }
  } catch (const Json::exception& error) {
    throw data_error(path, " is damaged: ", excerpt(error.what(), kReasonBytes));
  }
  if (dataset.sources_.empty()) throw data_error(path, " lists no sources");
  return dataset;
}

Dataset Dataset::open_files(const std::vector<std::string>& train,
                            const std::vector<std::string>& val, const TokenizerFacts& tokenizer) {
  Dataset dataset;
  dataset.tokenizer_ = tokenizer;
  Sha256 hash;
  hash.update(facts_json(tokenizer).dump());
  const auto open_all = [&](const std::vector<std::string>& paths) {
    std::vector<ShardReader> shards;
    for (const std::string& path : paths) {
      shards.emplace_back(path);
      // These formats state no checksums: the first block stands for the contents.
      const int64_t bytes =
          std::min(InputFile(path).size(), shards.back().header_bytes() + kShardBlock);
      hash.update(join(shards.back().tokens(), " ", header_checksum(path, bytes), "\n"));
    }
    return TokenStream(std::move(shards));
  };
  if (train.empty()) throw data_error("no training files are given");
  DataSource& source = dataset.sources_.emplace_back();
  source.name = "files";
  source.train = open_all(train);
  source.val = open_all(val);
  dataset.path_ = source.folder = fs::path(train.front()).parent_path().string();
  dataset.fingerprint_ = hash.finish();
  return dataset;
}

int64_t Dataset::train_tokens() const {
  int64_t sum = 0;
  for (const DataSource& source : sources_) sum += source.train.tokens();
  return sum;
}

int64_t Dataset::val_tokens() const {
  int64_t sum = 0;
  for (const DataSource& source : sources_) sum += source.val.tokens();
  return sum;
}

void Dataset::verify() const {
  for (const DataSource& source : sources_) {
    for (const ShardReader& shard : source.train.shards()) shard.verify();
    for (const ShardReader& shard : source.val.shards()) shard.verify();
  }
}

}  // namespace anabranch
