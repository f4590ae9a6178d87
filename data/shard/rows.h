// Rows of whole documents: which documents fill which row, worked out once for a data set.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace anabranch {

// Row r holds documents[begins[r]] .. documents[begins[r+1] - 1] one after the other. Only the last
// may be cut; a row has exactly `capacity` tokens.
struct RowTable {
  int64_t capacity = 0;          // T + 1
  std::vector<uint64_t> begins;  // [rows + 1]
  std::vector<uint32_t> documents;

  [[nodiscard]] int64_t rows() const { return static_cast<int64_t>(begins.size()) - 1; }
};

inline constexpr int64_t kBestFitBuffer = 1000, kBestFitRefill = 128;

// Fills rows from a buffer of documents, which is refilled by 128 whenever it holds less than
// `buffer`: always the largest document that fits whole, else the shortest, of which what does not
// fit is dropped; the earlier of equals. What is left when the documents end in the middle of a row
// is dropped.
//
//   document_offsets  [documents + 1], as in a shard
//   capacity          tokens in a row, T + 1
//
// Source: nanochat, `dataloader.py`, with one pass over the data as an epoch.
RowTable best_fit_rows(std::span<const uint64_t> document_offsets, int64_t capacity,
                       int64_t buffer = kBestFitBuffer);

// The file that keeps a table beside the shards: <folder>/rows-T<T>.h5.
[[nodiscard]] std::string rows_path(const std::string& folder, int64_t T);

void write_rows(const std::string& path, const RowTable& table,
                std::span<const uint64_t> document_offsets);

// The table in the file if there is one for these documents; none if there is no file. Throws
// data_error if the file is damaged or belongs to other documents.
std::optional<RowTable> read_rows(const std::string& path,
                                  std::span<const uint64_t> document_offsets, int64_t capacity);

}  // namespace anabranch
