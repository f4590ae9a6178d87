// The extents of a tensor, outermost first; at most six, kept inline.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <ostream>

#include "core/base/error.h"

namespace anabranch {

class Shape {
 public:
  static constexpr int kMaxRank = 6;

  Shape() = default;

  Shape(std::initializer_list<int64_t> extents) : Shape(extents.begin(), extents.end()) {}

  template <class It>
  Shape(It begin, It end) {
    for (; begin != end; ++begin) {
      AB_CHECK(rank_ < kMaxRank, "a tensor has at most ", kMaxRank, " axes");
      AB_CHECK(*begin >= 0, "extent ", *begin, " of axis ", rank_, " must not be negative");
      extents_[static_cast<size_t>(rank_++)] = static_cast<int64_t>(*begin);
    }
  }

  [[nodiscard]] int rank() const { return rank_; }

  // Extent of an axis; a negative axis counts from the end.
  [[nodiscard]] int64_t operator[](int axis) const {
    const int i = axis < 0 ? axis + rank_ : axis;
    AB_CHECK(0 <= i && i < rank_, "axis ", axis, " of a tensor of rank ", rank_);
    return extents_[static_cast<size_t>(i)];
  }

  // Number of elements; 1 for rank 0.
  [[nodiscard]] int64_t count() const {
    int64_t product = 1;
    for (const int64_t extent : *this) product *= extent;
    return product;
  }

  [[nodiscard]] const int64_t* begin() const { return extents_.data(); }

  [[nodiscard]] const int64_t* end() const { return extents_.data() + rank_; }

  bool operator==(const Shape& other) const {
    return std::equal(begin(), end(), other.begin(), other.end());
  }

  friend std::ostream& operator<<(std::ostream& out, const Shape& shape) {
    out << '[';
    const char* between = "";
    for (const int64_t extent : shape) {
      out << between << extent;
      between = ", ";
    }
    return out << ']';
  }

 private:
  std::array<int64_t, kMaxRank> extents_{};
  int rank_ = 0;
};

}  // namespace anabranch
