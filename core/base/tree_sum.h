// The order in which a balanced binary tree adds terms that come one after another:
// ((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7)). Terms that are dealt in equal blocks, as many of them
// and of blocks as a power of two, may be added block by block, and these the same way.
#pragma once

#include <bit>
#include <cstddef>

namespace anabranch {

// A stack of partial sums that its user keeps in numbered buffers; the result is in buffer 0.
class TreeSum {
 public:
  // Buffers that so many terms need.
  static constexpr size_t buffers(size_t terms) {
    return static_cast<size_t>(std::bit_width(terms));
  }

  // Where the next term belongs.
  [[nodiscard]] size_t top() const { return depth_; }

  // The term is there. Calls add(i) where buffer i + 1 is to be added to buffer i.
  template <class Add>
  [[gnu::always_inline]] void push(const Add& add) {
    ++depth_;
    for (size_t pairs = terms_++; pairs % 2 == 1; pairs /= 2) merge(add);
  }

  // After the last term.
  template <class Add>
  [[gnu::always_inline]] void finish(const Add& add) {
    while (depth_ > 1) merge(add);
  }

 private:
  template <class Add>
  [[gnu::always_inline]] void merge(const Add& add) {
    --depth_;
    add(depth_ - 1);
  }

  size_t terms_ = 0, depth_ = 0;
};

}  // namespace anabranch
