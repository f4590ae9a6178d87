#include "data/shard/rows.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <set>
#include <utility>

#include "core/base/crc32c.h"
#include "core/base/error.h"
#include "data/hdf5/file.h"

namespace anabranch {
namespace {

// Documents by length, then by their order.
using Buffer = std::set<std::pair<uint64_t, uint32_t>>;

// The largest document of at most `room` tokens, the first of equals; end() if there is none.
Buffer::iterator largest_that_fits(const Buffer& buffer, uint64_t room) {
  const auto above = buffer.upper_bound({room, std::numeric_limits<uint32_t>::max()});
  if (above == buffer.begin()) return buffer.end();
  return buffer.lower_bound({std::prev(above)->first, 0});
}

int64_t checksum(std::span<const uint64_t> values) {
  return crc32c(values.data(), values.size_bytes());
}

}  // namespace

RowTable best_fit_rows(std::span<const uint64_t> document_offsets, int64_t capacity,
                       int64_t buffer) {
  AB_CHECK(capacity >= 2 && buffer >= 1, "rows of ", capacity, " tokens from ", buffer,
           " documents");
  AB_CHECK(!document_offsets.empty(), "document_offsets is empty");
  AB_CHECK(document_offsets.size() - 1 < std::numeric_limits<uint32_t>::max(),
           "too many documents");
  const auto documents = static_cast<uint32_t>(document_offsets.size() - 1);
  RowTable table{capacity, {0}, {}};
  Buffer waiting;
  uint32_t next = 0;
  for (;;) {
    auto room = static_cast<uint64_t>(capacity);
    while (room > 0) {
      while (next < documents && std::ssize(waiting) < buffer) {
        for (int64_t i = 0; i < kBestFitRefill && next < documents; ++i, ++next) {
          const uint64_t length = document_offsets[next + 1] - document_offsets[next];
          if (length > 0) waiting.emplace(length, next);
        }
      }
      if (waiting.empty()) {
        table.documents.resize(table.begins.back());
        return table;
      }
      auto taken = largest_that_fits(waiting, room);
      if (taken == waiting.end()) taken = waiting.begin();
      table.documents.push_back(taken->second);
      room -= std::min(room, taken->first);
      waiting.erase(taken);
    }
    table.begins.push_back(table.documents.size());
  }
}

std::string rows_path(const std::string& folder, int64_t T) {
  return (std::filesystem::path(folder) / join("rows-T", T, ".h5")).string();
}

void write_rows(const std::string& path, const RowTable& table,
                std::span<const uint64_t> document_offsets) {
  const auto document_bytes = static_cast<int64_t>(table.documents.size() * sizeof(uint32_t));
  const auto begin_bytes = static_cast<int64_t>(table.begins.size() * sizeof(uint64_t));
  Hdf5Writer out(path);
  out.set("format_version", int64_t{1});
  out.set("capacity", table.capacity);
  out.set("document_offsets_crc32c", checksum(document_offsets));
  out.set("row_begins_crc32c", checksum(table.begins));
  out.set("row_documents_crc32c",
          int64_t{crc32c(table.documents.data(), static_cast<size_t>(document_bytes))});
  out.add("row_begins", Hdf5Type::kU64, {std::ssize(table.begins)});
  out.add("row_documents", Hdf5Type::kU32, {std::ssize(table.documents)});
  out.lay_out();
  out.write("row_begins", table.begins.data(), begin_bytes);
  out.write("row_documents", table.documents.data(), document_bytes);
  out.commit();
}

std::optional<RowTable> read_rows(const std::string& path,
                                  std::span<const uint64_t> document_offsets, int64_t capacity) {
  if (!std::filesystem::exists(path)) return std::nullopt;
  const Hdf5Reader in(path);
  if (in.int_attribute("format_version") != 1 || in.int_attribute("capacity") != capacity ||
      in.int_attribute("document_offsets_crc32c") != checksum(document_offsets)) {
    throw data_error(path, " belongs to other shards or another context; remove it");
  }
  RowTable table{capacity, in.read_all<uint64_t>("row_begins", Hdf5Type::kU64),
                 in.read_all<uint32_t>("row_documents", Hdf5Type::kU32)};
  const auto bytes = table.documents.size() * sizeof(uint32_t);
  if (checksum(table.begins) != in.int_attribute("row_begins_crc32c") ||
      crc32c(table.documents.data(), bytes) != in.int_attribute("row_documents_crc32c") ||
      table.begins.empty() || table.begins.back() != table.documents.size()) {
    throw data_error(path, " is damaged; remove it");
  }
  return table;
}

}  // namespace anabranch
