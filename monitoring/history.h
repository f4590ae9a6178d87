// The course of some figures in bounded memory, for charts.
#pragma once

#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

namespace anabranch {

// Figures by an x that grows. When the memory is full, each two neighbours become one, and from
// then on a point is of twice as many: the whole course stays, evenly, at half the resolution.
class History {
 public:
  // figures   of a point
  // capacity  points that are kept at most, even
  explicit History(int64_t figures, int64_t capacity = 512);

  // Adds one value a figure at `x`; not-a-number: unknown. Does not wait: while a reader copies,
  // the values are left out.
  void add(double x, std::span<const double> values);

  struct Point {
    double x;                     // the last of those that it stands for
    std::vector<double> figures;  // means of the known ones; not-a-number if none is
  };

  [[nodiscard]] std::vector<Point> points() const;

 private:
  struct Slot {
    double x = 0;
    int64_t added = 0;
  };

  struct Sum {
    double sum = 0;
    int64_t count = 0;
  };

  void merge_pairs();

  Sum& sum_of(int64_t slot, int64_t figure) {
    return sums_[static_cast<size_t>(slot * figures_ + figure)];
  }

  int64_t figures_, capacity_;
  mutable std::mutex lock_;
  int64_t stride_ = 1;  // values that a slot takes
  std::vector<Slot> slots_;
  std::vector<Sum> sums_;  // [capacity, figures]
};

}  // namespace anabranch
