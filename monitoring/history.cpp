#include "monitoring/history.h"

#include <cmath>
#include <limits>

#include "core/base/error.h"

namespace anabranch {

History::History(int64_t figures, int64_t capacity)
    : figures_(figures), capacity_(capacity), sums_(static_cast<size_t>(figures * capacity)) {
  AB_CHECK(figures > 0 && capacity > 0 && capacity % 2 == 0, "a history of ", figures,
           " figures and ", capacity, " points; the latter must be even");
  slots_.reserve(static_cast<size_t>(capacity));
}

void History::add(double x, std::span<const double> values) {
  AB_CHECK(std::ssize(values) == figures_, values.size(), " values for ", figures_, " figures");
  const std::unique_lock hold(lock_, std::try_to_lock);
  if (!hold) return;
  if (slots_.empty() || slots_.back().added == stride_) {
    if (std::ssize(slots_) == capacity_) merge_pairs();
    slots_.push_back({});
  }
  Slot& slot = slots_.back();
  slot.x = x;
  ++slot.added;
  for (int64_t i = 0; i < figures_; ++i) {
    const double value = values[static_cast<size_t>(i)];
    if (!std::isfinite(value)) continue;
    Sum& sum = sum_of(std::ssize(slots_) - 1, i);
    sum.sum += value;
    ++sum.count;
  }
}

void History::merge_pairs() {
  for (int64_t s = 0; s < capacity_ / 2; ++s) {
    const Slot &first = slots_[static_cast<size_t>(2 * s)],
               &second = slots_[static_cast<size_t>(2 * s + 1)];
    slots_[static_cast<size_t>(s)] = {second.x, first.added + second.added};
    for (int64_t i = 0; i < figures_; ++i) {
      const Sum a = sum_of(2 * s, i), b = sum_of(2 * s + 1, i);
      sum_of(s, i) = {a.sum + b.sum, a.count + b.count};
    }
  }
  slots_.resize(static_cast<size_t>(capacity_ / 2));
  std::fill(sums_.begin() + capacity_ / 2 * figures_, sums_.end(), Sum{});
  stride_ *= 2;
}

std::vector<History::Point> History::points() const {
  std::vector<Slot> slots;
  std::vector<Sum> sums;
  {
    const std::lock_guard hold(lock_);
    slots = slots_;
    sums.assign(sums_.begin(), sums_.begin() + std::ssize(slots_) * figures_);
  }
  std::vector<Point> points;
  const Sum* sum = sums.data();
  for (const Slot& slot : slots) {
    Point point{slot.x, {}};
    for (int64_t i = 0; i < figures_; ++i, ++sum) {
      point.figures.push_back(sum->count > 0 ? sum->sum / static_cast<double>(sum->count)
                                             : std::numeric_limits<double>::quiet_NaN());
    }
    points.push_back(std::move(point));
  }
  return points;
}

}  // namespace anabranch
