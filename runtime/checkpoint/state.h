// The state of a run as named tensors, as checkpoints see it.
#pragma once

#include <compare>
#include <string>
#include <vector>

#include "core/tensor/part.h"
#include "core/tensor/tensor.h"

namespace anabranch {

// The ranks that have the same part of a tensor: `count` of them, first, first + stride, ...
struct Holders {
  int first = 0, stride = 1, count = 1;

  // Which of them `rank` is, from 0; -1 if it is none of them.
  [[nodiscard]] int place_of(int rank) const {
    const int place = (rank - first) / stride;
    return rank >= first && place < count && first + place * stride == rank ? place : -1;
  }

  auto operator<=>(const Holders&) const = default;
};

// What this rank has of one logical tensor. `value` shares the memory that training uses.
//
// Every rank tells the same of `part` and `holders` as the others that have the part, and lists the
// items of one set of holders in one order. A rank that has none of the tensor has no item of it.
struct StateItem {
  std::string name;  // unique over the run: "wte.weight", "adamw.m/wte.weight"
  Part part;         // of the logical tensor, that the holders have
  Tensor value;      // elements of the part, row-major, from element `from` on; of any shape
  int64_t from = 0;
  Holders holders = {};
  bool sharded = false;  // each holder has elements of its own; else each has all of the part

  // A tensor that ranks 0 to `ranks` - 1 all have.
  static StateItem whole(std::string name, const Tensor& value, int ranks = 1) {
    return {std::move(name), Part::all(value.shape()), value, 0, {0, 1, ranks}};
  }
};

// Which of the items rank `rank` stores, by their places: its elements of sharded ones, and of
// the others, which are dealt whole among their holders, so many that all bytes are even. Every
// holder of an item comes to the same by itself.
std::vector<size_t> stored_by(int rank, const std::vector<StateItem>& items);

// `count` elements that lie together in a logical tensor, from its element `there` on, and in
// memory, from element `here` on.
struct Run {
  int64_t here, there, count;
};

// Where the elements [from, from + count) of a part lie: ascending; `here` counts from `from`.
std::vector<Run> runs_of(const Part& part, int64_t from, int64_t count);

// Throws Error (data, 65) that names the element if a floating tensor holds a NaN or an infinity.
void check_finite(const std::string& name, const Tensor& value);

}  // namespace anabranch
