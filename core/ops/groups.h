// Rows sorted by the expert that works on them, and where each of them came from.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/base/parallel_for.h"
#include "core/tensor/tensor.h"

namespace anabranch {

// Consecutive rows of a matrix by group (expert): group e has the rows offsets[e] to
// offsets[e + 1] - 1. A group may be empty.
//
// A router on a GPU decides how many rows a group has without telling the host. Then `offsets` is
// empty and kernels read them from `on_device`. Matrices then have `row_bound` rows; what those
// behind the last group hold is undefined and must not reach a result.
struct Groups {
  std::vector<int64_t> offsets{0};  // ascending from 0; empty: only the device knows them
  Tensor on_device = {};            // [count() + 1] int64 in a GPU's memory, or empty
  int64_t row_bound = 0;            // with `on_device`: the most rows that there can be

  [[nodiscard]] bool on_host() const { return on_device.empty(); }

  [[nodiscard]] int64_t count() const {
    return (on_host() ? std::ssize(offsets) : on_device.count()) - 1;
  }

  [[nodiscard]] int64_t begin(int64_t e) const { return offset(e); }

  [[nodiscard]] int64_t end(int64_t e) const { return offset(e + 1); }

  [[nodiscard]] int64_t size(int64_t e) const { return end(e) - begin(e); }

  [[nodiscard]] int64_t rows() const { return offset(count()); }

  // Rows of a matrix that they are of.
  [[nodiscard]] int64_t most_rows() const { return on_host() ? rows() : row_bound; }

 private:
  [[nodiscard]] int64_t offset(int64_t e) const {
    AB_CHECK(on_host(), "only the GPU knows how many rows each of the ", count(), " groups has");
    return offsets[static_cast<size_t>(e)];
  }
};

// The same for the host, which waits for them if only the GPU knows them.
inline Groups seen_by_host(const Groups& groups) {
  if (groups.on_host()) return groups;
  const Tensor here = groups.on_device.on_host();
  return {{here.span<int64_t>().begin(), here.span<int64_t>().end()}};
}

// What a router decided: S slots, each a copy of one of M rows on its way through one expert. Where
// only the GPU knows the groups, S is their bound, and unused slots have source and gate -1.
struct SlotPlan {
  int64_t rows = 0;  // M
  Groups groups;     // of the slots, by expert
  Tensor source;     // [S] int32: the row of each slot
  Tensor gate;       // [S] int32: the flat index of each slot's gate in the tensor of gates
};

// Throws Error unless `groups` are `count` ascending ranges over `rows` rows; of offsets that only
// the GPU knows, how many they are and how many rows they allow.
inline void check_groups(const char* op, const Groups& groups, int64_t count, int64_t rows) {
  AB_CHECK(groups.count() >= 0 && groups.count() == count, "[", op, "] ", groups.count(),
           " groups of rows for ", count, " experts");
  if (!groups.on_host()) {
    AB_CHECK(groups.on_device.dtype() == DType::kI64 && groups.row_bound == rows, "[", op,
             "] groups of at most ", groups.row_bound, " rows, as ",
             name_of(groups.on_device.dtype()), " on a GPU, for ", rows, " rows");
    return;
  }
  AB_CHECK(groups.offsets.front() == 0 && groups.rows() == rows &&
               std::is_sorted(groups.offsets.begin(), groups.offsets.end()),
           "[", op, "] the groups must be ascending ranges from 0 to ", rows, " but end at ",
           groups.rows());
}

// Some rows of one group.
struct RowTile {
  int64_t group, begin, end;
};

// The rows of all groups in pieces of at most `most` rows, in order. Empty groups have none.
inline std::vector<RowTile> row_tiles(const Groups& groups, int64_t most) {
  std::vector<RowTile> tiles;
  for (int64_t e = 0; e < groups.count(); ++e) {
    for (int64_t row = groups.begin(e); row < groups.end(e); row += most) {
      tiles.push_back({e, row, std::min(row + most, groups.end(e))});
    }
  }
  return tiles;
}

// Calls body(tile index) for every tile, spread over threads by equal numbers of rows. What a tile
// computes does not depend on the number of threads.
template <class Body>
void for_tiles(const std::vector<RowTile>& tiles, const Body& body) {
  if (tiles.empty()) return;
  const int64_t first = tiles.front().begin;
  const auto before = [](const RowTile& tile, int64_t row) { return tile.begin < row; };
  parallel_for(tiles.back().end - first, 1, [&](int64_t begin, int64_t end) {
    auto tile = std::lower_bound(tiles.begin(), tiles.end(), first + begin, before);
    for (; tile != tiles.end() && tile->begin < first + end; ++tile) body(tile - tiles.begin());
  });
}

}  // namespace anabranch
