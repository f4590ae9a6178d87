// What the benches share: a clock, medians, and values of no meaning.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "parallel/comm/group.h"

namespace anabranch {

// Seconds since it was made.
class Stopwatch {
 public:
  [[nodiscard]] double seconds() const {
    return std::chrono::duration<double>(Clock::now() - begin_).count();
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point begin_ = Clock::now();
};

// The middle value, or the mean of the two in the middle; 0 if there is none.
[[nodiscard]] double median(std::vector<double> values);

// The slowest rank's, each by itself. Collective; as many on every rank.
[[nodiscard]] std::vector<double> slowest(Group& world, const std::vector<double>& seconds);
[[nodiscard]] double slowest(Group& world, double seconds);

// Random int32 ids below `vocabulary`.
[[nodiscard]] Tensor random_ids(Shape shape, int64_t vocabulary, uint64_t seed,
                                const std::shared_ptr<Pool>& pool);

// Normal values; zeros would make softmax, rounding and the power drawn unlike training.
[[nodiscard]] Tensor random_values(Shape shape, DType type, const std::shared_ptr<Pool>& pool);

// The seconds of each of `repeats` calls, after one that does not count.
template <class F>
std::vector<double> seconds_of(int64_t repeats, F&& f) {
  f();
  std::vector<double> all;
  for (int64_t i = 0; i < repeats; ++i) {
    const Stopwatch watch;
    f();
    all.push_back(watch.seconds());
  }
  return all;
}

}  // namespace anabranch
