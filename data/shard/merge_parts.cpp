#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <memory>
#include <utility>

#include "core/base/error.h"
#include "core/base/philox.h"
#include "data/shard/parts.h"

namespace anabranch {
namespace {

// A number for a document that looks random and depends on its source and place alone.
uint64_t draw(const std::string& source, int64_t document) {
  return mix_keys(name_key(source), static_cast<uint64_t>(document));
}

using Batches = std::vector<const PartBatch*>;

// Whether each document of a source goes to validation.
using Split = std::vector<bool>;

// Those that draw least.
void choose_spread(const std::string& source, double fraction, Split& split) {
  const auto documents = std::ssize(split);
  uint64_t least = std::numeric_limits<uint64_t>::max();
  for (int64_t d = 0; d < documents; ++d) least = std::min(least, draw(source, d));
  const auto wanted = static_cast<uint64_t>(std::ldexp(fraction, 63)) * 2;
  const uint64_t most = std::max(least, wanted);
  for (int64_t d = 0; d < documents; ++d) {
    split[static_cast<size_t>(d)] = draw(source, d) <= most;
  }
}

// The last of each file, to the nearest whole number; if that is none anywhere, the very last one.
void choose_last(const Batches& batches, double fraction, Split& split) {
  size_t end = 0;
  for (size_t i = 0; i < batches.size();) {
    const size_t begin = end;
    const int64_t file = batches[i]->file;
    for (; i < batches.size() && batches[i]->file == file; ++i) end += batches[i]->lengths.size();
    const auto count = static_cast<size_t>(fraction * static_cast<double>(end - begin) + 0.5);
    for (size_t d = end - count; d < end; ++d) split[d] = true;
  }
  if (std::ranges::find(split, true) == split.end()) split.back() = true;
}

Split choose_split(const std::string& source, const Batches& batches, int64_t documents,
                   const BuildOptions& options) {
  Split split(static_cast<size_t>(documents), false);
  if (options.validation_fraction <= 0) return split;
  if (options.validation_place == ValidationPlace::kLast) {
    choose_last(batches, options.validation_fraction, split);
  } else {
    choose_spread(source, options.validation_fraction, split);
  }
  const int64_t validating = std::ranges::count(split, true);
  if (validating < documents) return split;
  throw data_error("source ", source, " has ", documents,
                   documents == 1 ? " document" : " documents", ", and validation takes ",
                   validating, " of them: nothing is left to train on; cut the text into smaller ",
                   "documents (lines, paragraphs), or take a smaller fraction");
}

// Gathers documents until a shard is full, and writes it if it is this rank's.
class ShardCutter {
 public:
  ShardCutter(const TokenizerFacts& tokenizer, const BuildOptions& options, std::string folder,
              std::string split)
      : tokenizer_(tokenizer),
        options_(options),
        folder_(std::move(folder)),
        split_(std::move(split)) {}

  void add(int64_t rank, int64_t position, uint32_t length, uint32_t words, int64_t& shard_number) {
    const bool follows = !runs_.empty() && runs_.back().rank == rank &&
                         runs_.back().position + runs_.back().tokens == position;
    if (!follows) runs_.push_back({rank, position, 0});
    runs_.back().tokens += length;
    offsets_.push_back(offsets_.back() + length);
    tokens_ += length;
    words_ += words;
    ++documents_;
    if (static_cast<int64_t>(offsets_.back()) >= options_.shard_tokens) close(shard_number);
  }

  void close(int64_t& shard_number) {
    if (offsets_.size() == 1) return;
    std::array<char, 32> name{};
    std::snprintf(name.data(), name.size(), "%s-%05zu.h5", split_.c_str(), names_.size());
    names_.emplace_back(name.data());
    if (shard_number++ % options_.ranks == options_.rank) write();
    runs_.clear();
    offsets_.assign(1, 0);
  }

  [[nodiscard]] const std::vector<std::string>& names() const { return names_; }

  [[nodiscard]] int64_t tokens() const { return tokens_; }

  [[nodiscard]] int64_t words() const { return words_; }

  [[nodiscard]] int64_t documents() const { return documents_; }

 private:
  struct Run {
    int64_t rank, position, tokens;
  };

  void write() const {
    std::vector<uint32_t> tokens(offsets_.back());
    size_t at = 0;
    const PartNames names{options_.out};
    std::unique_ptr<InputFile> part;
    int64_t open_rank = -1;
    for (const Run& run : runs_) {
      if (run.rank != open_rank) part = std::make_unique<InputFile>(names.tokens(run.rank));
      open_rank = run.rank;
      read(*part, run, tokens.data() + at);
      at += static_cast<size_t>(run.tokens);
    }
    write_shard(folder_ + "/" + names_.back(), tokenizer_, tokens, offsets_);
  }

  void read(const InputFile& part, const Run& run, uint32_t* to) const {
    const auto count = static_cast<size_t>(run.tokens);
    if (token_type(tokenizer_.vocab_size) == Hdf5Type::kU32) {
      part.read(run.position * 4, to, count * 4);
      return;
    }
    std::vector<uint16_t> narrow(count);
    part.read(run.position * 2, narrow.data(), count * 2);
    std::copy(narrow.begin(), narrow.end(), to);
  }

  const TokenizerFacts& tokenizer_;
  const BuildOptions& options_;
  std::string folder_, split_;
  std::vector<Run> runs_;
  std::vector<uint64_t> offsets_ = {0};
  std::vector<std::string> names_;
  int64_t tokens_ = 0, words_ = 0, documents_ = 0;
};

void merge_source(const TokenizerFacts& tokenizer, const BuildOptions& options,
                  const Batches& batches, SourceRecord& record, SourceReport& report,
                  int64_t& shard_number) {
  int64_t documents = 0;
  for (const PartBatch* batch : batches) {
    documents += std::ssize(batch->lengths);
    report.text_bytes += batch->text_bytes;
    report.empty_documents += batch->empty_documents;
    report.invalid_utf8_documents += batch->invalid_utf8_documents;
  }
  if (documents == 0) {
    throw data_error("source ", record.name, " has no document with text in it (",
                     report.empty_documents, " empty ones)");
  }
  const Split split = choose_split(record.name, batches, documents, options);
  const std::string folder = (std::filesystem::path(options.out) / record.folder).string();
  ShardCutter train(tokenizer, options, folder, "train"), val(tokenizer, options, folder, "val");
  size_t document = 0;
  for (const PartBatch* batch : batches) {
    int64_t position = batch->position;
    for (size_t d = 0; d < batch->lengths.size(); ++d) {
      ShardCutter& to = split[document++] ? val : train;
      to.add(batch->rank, position, batch->lengths[d], batch->words[d], shard_number);
      position += batch->lengths[d];
    }
  }
  train.close(shard_number);
  val.close(shard_number);
  record.train = train.names();
  record.val = val.names();
  record.text_bytes = report.text_bytes;
  record.empty_documents = report.empty_documents;
  record.invalid_utf8_documents = report.invalid_utf8_documents;
  report.train_documents = train.documents();
  report.val_documents = val.documents();
  report.train_tokens = train.tokens();
  report.val_tokens = val.tokens();
  report.train_words = record.train_words = train.words();
  report.val_words = record.val_words = val.words();
}

}  // namespace

void merge_parts(const TokenizerFacts& tokenizer, const BuildOptions& options,
                 const std::vector<PartBatch>& batches, std::vector<SourceRecord>& records,
                 BuildReport& report) {
  std::vector<Batches> by_source(records.size());
  for (const PartBatch& batch : batches) {
    by_source.at(static_cast<size_t>(batch.source)).push_back(&batch);
  }
  report.shards = 0;
  for (size_t s = 0; s < records.size(); ++s) {
    SourceReport& of = report.sources.emplace_back();
    of.name = records[s].name;
    merge_source(tokenizer, options, by_source[s], records[s], of, report.shards);
  }
}

}  // namespace anabranch
