// Text to shards, on all cores and several ranks.
//
// The bytes of every shard depend on the inputs, the tokenizer and the options that say what is
// wanted, never on the number of workers or ranks: documents are numbered by (source, file, place
// in the file), a document's split follows from its number, and shards are cut by tokens.
//
// Every rank first tokenises its share of the text into a part file beside the shards; then every
// rank knows all lengths, and writes its share of the shards from the parts.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/text/documents.h"
#include "data/tokenizer/tokenizer.h"

namespace anabranch {

struct SourceOptions {
  std::string name = "text";             // letters, digits, - and _
  std::vector<std::string> inputs = {};  // files, folders, patterns: see list_inputs
  TextFormat format = {};
  double weight = 0;  // share of the training samples; 0 for all sources: by their tokens
};

// Which documents of a source are kept apart for validation.
enum class ValidationPlace : uint8_t {
  kSpread,  // chosen by a hash of their number
  kLast     // the last ones of each file
};

struct BuildProgress {
  int64_t bytes = 0, bytes_total = 0;  // of the input files, on this rank
  int64_t documents = 0, tokens = 0;
  double seconds = 0;
};

struct BuildOptions {
  std::string out;  // the folder, made if missing; shared by all ranks
  std::vector<SourceOptions> sources;
  // Of a source's documents; at least one document each for training and, unless the fraction is
  // 0, for validation.
  double validation_fraction = 0.01;
  ValidationPlace validation_place = ValidationPlace::kSpread;
  bool begin_documents = true;  // with the tokenizer's bos_id(); else they follow without a mark
  int64_t shard_tokens = int64_t{1} << 26U;  // a shard ends with the document that reaches this
  bool skip_empty = false;  // count documents without text instead of refusing them
  int workers = 0;          // threads that tokenise; 0: one for each core
  int rank = 0, ranks = 1;
  std::function<void()> barrier;  // returns once every rank has called it; needed if ranks > 1
  std::function<void(const BuildProgress&)> progress;  // a few times a second, on this thread
};

struct SourceReport {
  std::string name;
  int64_t text_bytes = 0;  // of the documents
  int64_t train_documents = 0, val_documents = 0, train_tokens = 0, val_tokens = 0;
  int64_t train_words = 0, val_words = 0;  // see count_words
  int64_t empty_documents = 0;             // left out
  int64_t invalid_utf8_documents = 0;      // kept byte for byte
};

struct BuildReport {
  std::vector<SourceReport> sources;
  int64_t shards = 0;
  double seconds = 0;
};

// Builds a data set folder (see dataset.h).
//
// Throws usage_error (bad options, or `out` holds a data set already), data_error (bad text, a
// document without text, nothing to split), io_error. All ranks return the same report.
BuildReport build_shards(const Tokenizer& tokenizer, const BuildOptions& options);

}  // namespace anabranch
