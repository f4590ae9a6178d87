// A split cut into training samples of T + 1 tokens.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/shard/dataset.h"
#include "data/shard/rows.h"

namespace anabranch {

enum class Packing : uint8_t {
  kWindows,  // every T tokens of the concatenated documents; the last token is the next one's first
  kBestFit   // rows of whole documents, see best_fit_rows
};

class Samples {
 public:
  // Cuts the training split of `source`, which must outlive this. For kBestFit the row table is
  // read from beside the shards if it is there, else worked out. Throws data_error if the split has
  // not a single sample of T + 1 tokens, or is to be cut by documents it does not know.
  //
  //   documents  for document_starts; kBestFit knows them anyway
  Samples(const DataSource& source, Packing packing, int64_t T, bool documents = false);

  [[nodiscard]] int64_t count() const { return count_; }

  // The T + 1 tokens of a sample.
  void read(int64_t sample, int32_t* to) const;

  // Where in the sample the document of each of its first T tokens begins; 0 if it began before the
  // sample. A document begins with the token that the tokenizer begins documents with.
  void document_starts(int64_t sample, int32_t* to) const;

  // "file, token n" of the i-th token of a sample, for messages.
  [[nodiscard]] std::string where(int64_t sample, int64_t i) const;

 private:
  // Calls f(first token, count) for the pieces of a sample.
  template <class F>
  void for_pieces(int64_t sample, const F& f) const;

  const TokenStream& tokens_;
  Packing packing_;
  int64_t T_, count_ = 0;
  std::vector<uint64_t> documents_;  // offsets; empty if not asked for
  RowTable rows_;                    // kBestFit only
};

// Works the row table of every source out and keeps it beside the shards. Throws data_error or
// io_error.
void write_row_tables(const Dataset& dataset, int64_t T);

}  // namespace anabranch
