// A folder of shards with the tokenizer that made them: what a run trains on.
//
//   dataset.json, tokenizer.json, train-00000.h5 ..., val-00000.h5 ...      one source
//   dataset.json, tokenizer.json, sources/<name>/train-00000.h5 ...         several
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/shard/token_stream.h"

namespace anabranch {

struct DataSource {
  std::string name;
  std::string folder;
  double weight = 0;  // its share of the training samples; 0: by its number of tokens
  // Of the text, see count_words; -1: not known, the data set is older or others made it.
  int64_t train_words = -1, val_words = -1;
  TokenStream train, val;
};

class Dataset {
 public:
  // Opens a folder made by build_shards: every file must be there, of its size, its header and
  // facts must be as dataset.json says, and tokenizer.json must be the one of the shards. The
  // tokens are not read: see verify. Throws data_error that names the file.
  static Dataset open(const std::string& folder);

  // Opens files that others made (see ShardReader). `val` may be empty.
  static Dataset open_files(const std::vector<std::string>& train,
                            const std::vector<std::string>& val, const TokenizerFacts& tokenizer);

  [[nodiscard]] const std::string& path() const { return path_; }

  [[nodiscard]] const TokenizerFacts& tokenizer() const { return tokenizer_; }

  // tokenizer.json in the folder; empty for files of others.
  [[nodiscard]] const std::string& tokenizer_path() const { return tokenizer_path_; }

  [[nodiscard]] const std::vector<DataSource>& sources() const { return sources_; }

  // SHA-256 over the contents (checksums, counts, tokenizer) whatever the folder is called: a
  // position in the data means something only together with it.
  [[nodiscard]] const std::string& fingerprint() const { return fingerprint_; }

  [[nodiscard]] int64_t train_tokens() const;
  [[nodiscard]] int64_t val_tokens() const;

  // Reads every file and checks every checksum and id. Throws data_error at the first fault.
  void verify() const;

 private:
  std::string path_, tokenizer_path_, fingerprint_;
  TokenizerFacts tokenizer_;
  std::vector<DataSource> sources_;
};

// What build_shards writes into dataset.json about a source.
struct SourceRecord {
  std::string name, folder;  // the folder as seen from dataset.json: "." or "sources/<name>"
  double weight = 0;
  std::vector<std::string> train, val;  // file names
  int64_t text_bytes = 0, empty_documents = 0, invalid_utf8_documents = 0;
  int64_t train_words = 0, val_words = 0;
};

// Writes dataset.json over shards that are there; opens each for its facts. Throws data_error or
// io_error.
void write_dataset_json(const std::string& folder, const TokenizerFacts& tokenizer,
                        const std::vector<SourceRecord>& sources);

}  // namespace anabranch
