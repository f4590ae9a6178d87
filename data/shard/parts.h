// What the two halves of build_shards pass through the disk: tokens in the order in which a rank
// met them, and where each batch of documents belongs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "data/shard/build.h"
#include "data/shard/dataset.h"

namespace anabranch {

// A run of documents of one file, tokenised together.
struct PartBatch {
  int64_t source = 0, file = 0, number = 0;  // the order of all batches
  int64_t rank = 0, position = 0;            // whose part file, and the first token in it
  int64_t text_bytes = 0, empty_documents = 0, invalid_utf8_documents = 0;
  std::vector<uint32_t> lengths;  // tokens of each document, the first token included
  std::vector<uint32_t> words;    // of each document
};

struct PartNames {
  std::string folder;  // the data set's

  [[nodiscard]] std::string parts() const { return folder + "/parts"; }

  [[nodiscard]] std::string tokens(int64_t rank) const {
    return join(parts(), "/tokens-", rank, ".bin");
  }

  [[nodiscard]] std::string index(int64_t rank) const {
    return join(parts(), "/index-", rank, ".bin");
  }
};

// First half: tokenises this rank's share and writes its part file and index.
void write_parts(const Tokenizer& tokenizer, const BuildOptions& options,
                 const std::vector<std::vector<InputText>>& files);

// The index of every rank, in the order of documents.
std::vector<PartBatch> read_part_index(const PartNames& names, int ranks);

// One rank's index.
void write_part_index(const std::string& path, const std::vector<PartBatch>& batches);

// Second half: writes this rank's share of the shards, and counts all of them.
//
//   records  gets the names of every source's shards, this rank's or not
void merge_parts(const TokenizerFacts& tokenizer, const BuildOptions& options,
                 const std::vector<PartBatch>& batches, std::vector<SourceRecord>& records,
                 BuildReport& report);

}  // namespace anabranch
