// Which elements of a logical tensor are here: consecutive indices of one axis, all of the others.
#pragma once

#include <algorithm>
#include <array>

#include "core/tensor/shape.h"

namespace anabranch {

struct Part {
  Shape whole;  // of the logical tensor
  int axis = 0;
  int64_t begin = 0;   // first index of that axis
  int64_t extent = 0;  // how many of its indices

  static Part all(const Shape& whole) { return {whole, 0, 0, whole.rank() > 0 ? whole[0] : 1}; }

  [[nodiscard]] Shape shape() const {
    std::array<int64_t, Shape::kMaxRank> extents{};
    std::copy(whole.begin(), whole.end(), extents.begin());
    extents[static_cast<size_t>(axis)] = extent;
    return {extents.begin(), extents.begin() + whole.rank()};
  }

  [[nodiscard]] int64_t count() const { return shape().count(); }

  bool operator==(const Part&) const = default;

  // How many runs() makes of the elements [from, from + count), at most.
  [[nodiscard]] int64_t run_count(int64_t from, int64_t count) const {
    if (count == 0) return 0;
    const int64_t mine = block();
    return extent == length() ? 1 : (from + count - 1) / mine - from / mine + 1;
  }

  // Calls run(here, there, count) for the longest runs of elements that lie one after the other
  // both in this part, from its element `here` on, and in the whole, from `there` on: together the
  // elements [from, from + count) of the part, in order.
  template <class Run>
  void runs(int64_t from, int64_t count, const Run& run) const {
    const int64_t mine = block(), all = length() * inner(), first = begin * inner();
    for (int64_t here = from; here < from + count;) {
      const int64_t index = here / mine, at = here % mine;
      const int64_t rest = from + count - here;
      const int64_t together = mine == all ? rest : std::min(mine - at, rest);
      run(here, index * all + first + at, together);
      here += together;
    }
  }

 private:
  // Indices of the axis.
  [[nodiscard]] int64_t length() const { return whole.rank() > 0 ? whole[axis] : 1; }

  // Elements of one of its indices.
  [[nodiscard]] int64_t inner() const {
    int64_t product = 1;
    for (int i = axis + 1; i < whole.rank(); ++i) product *= whole[i];
    return product;
  }

  // Elements that lie together in the part.
  [[nodiscard]] int64_t block() const { return extent * inner(); }
};

}  // namespace anabranch
