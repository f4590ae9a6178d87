#include "data/shard/rows.h"

#include <algorithm>
#include <deque>

#include "tests/data/shard/text_set.h"

namespace anabranch {
namespace {

using test::expect_error;
using test::Folder;

struct Piece {
  uint32_t document;
  int64_t tokens;
  bool operator==(const Piece&) const = default;
};

// The rule as it is written in nanochat: a list of documents, searched from its beginning.
std::vector<std::vector<Piece>> plain_best_fit(const std::vector<int64_t>& lengths,
                                               int64_t capacity, size_t buffer_size) {
  std::deque<Piece> buffer;
  size_t next = 0;
  std::vector<std::vector<Piece>> rows;
  for (;;) {
    std::vector<Piece> row;
    int64_t used = 0;
    while (used < capacity) {
      while (buffer.size() < buffer_size && next < lengths.size()) {
        for (int i = 0; i < 128 && next < lengths.size(); ++i, ++next) {
          buffer.push_back({static_cast<uint32_t>(next), lengths[next]});
        }
      }
      if (buffer.empty()) return rows;
      int best = -1, shortest = 0;
      for (int i = 0; i < static_cast<int>(buffer.size()); ++i) {
        const int64_t length = buffer[static_cast<size_t>(i)].tokens;
        const bool fits = length <= capacity - used;
        if (fits && (best < 0 || length > buffer[static_cast<size_t>(best)].tokens)) best = i;
        if (length < buffer[static_cast<size_t>(shortest)].tokens) shortest = i;
      }
      const int taken = best >= 0 ? best : shortest;
      Piece piece = buffer[static_cast<size_t>(taken)];
      buffer.erase(buffer.begin() + taken);
      piece.tokens = std::min(piece.tokens, capacity - used);
      used += piece.tokens;
      row.push_back(piece);
    }
    rows.push_back(row);
  }
}

std::vector<uint64_t> offsets_of(const std::vector<int64_t>& lengths) {
  std::vector<uint64_t> offsets = {0};
  for (const int64_t n : lengths) offsets.push_back(offsets.back() + static_cast<uint64_t>(n));
  return offsets;
}

TEST(BestFit, IsNanochatsRule) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    std::vector<int64_t> lengths;
    const uint64_t count = 5 + philox(seed, 1)[0] % 3000;
    for (uint64_t d = 0; d < count; ++d) {
      const PhiloxBlock random = philox(seed, d, 1);
      lengths.push_back(1 + random[0] % (random[1] % 10 == 0 ? 300 : 40));
    }
    const std::vector<uint64_t> offsets = offsets_of(lengths);
    for (const auto& [capacity, buffer] : {std::pair{65, 1000}, {129, 10}, {10, 1}}) {
      const RowTable table = best_fit_rows(offsets, capacity, buffer);
      const auto want = plain_best_fit(lengths, capacity, static_cast<size_t>(buffer));
      ASSERT_EQ(table.rows(), std::ssize(want)) << seed;
      for (size_t r = 0; r < want.size(); ++r) {
        ASSERT_EQ(table.begins[r + 1] - table.begins[r], want[r].size());
        for (size_t i = 0; i < want[r].size(); ++i) {
          ASSERT_EQ(table.documents[table.begins[r] + i], want[r][i].document);
        }
      }
    }
  }
}

TEST(BestFit, KeepsItsTableBesideTheShards) {
  const Folder folder;
  const std::vector<uint64_t> offsets = offsets_of({5, 9, 3, 2, 7, 7, 1, 30});
  const RowTable table = best_fit_rows(offsets, 9);
  const std::string path = rows_path(folder.path(), 8);
  EXPECT_FALSE(read_rows(path, offsets, 9).has_value());
  write_rows(path, table, offsets);
  const auto kept = read_rows(path, offsets, 9);
  ASSERT_TRUE(kept.has_value());
  EXPECT_EQ(kept->begins, table.begins);
  EXPECT_EQ(kept->documents, table.documents);
  const std::vector<uint64_t> other = offsets_of({5, 9, 3, 2, 7, 7, 1, 31});
  expect_error(Fault::kData, {path, "other shards"}, [&] { (void)read_rows(path, other, 9); });
  std::string bytes = test::slurp(path);
  bytes[bytes.size() - 2] ^= 4;
  test::spill(path, bytes);
  expect_error(Fault::kData, {path, "damaged"}, [&] { (void)read_rows(path, offsets, 9); });
}

}  // namespace
}  // namespace anabranch
