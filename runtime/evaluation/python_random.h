// The random numbers of CPython's `random.Random(seed)`, bit for bit: evaluation suites published
// in Python choose their examples with it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace anabranch {

// MT19937 seeded as CPython seeds it, with its ways of drawing.
class PythonRandom {
 public:
  explicit PythonRandom(uint64_t seed);

  // The generator's next 32 bits: getrandbits(32).
  uint32_t next();

  // A whole number in [0, n), by rejection; 1 <= n < 2^32. As randrange(n).
  uint32_t below(uint32_t n);

  // Shuffles as random.shuffle().
  template <class T>
  void shuffle(std::vector<T>& items) {
    for (size_t i = items.size(); i-- > 1;) {
      std::swap(items[i], items[below(static_cast<uint32_t>(i) + 1)]);
    }
  }

  // k places of a population of n, in the order drawn: random.sample(range(n), k). k <= n.
  std::vector<uint32_t> sample(uint32_t n, uint32_t k);

 private:
  static constexpr size_t kWords = 624;

  std::array<uint32_t, kWords> state_{};
  size_t at_ = kWords;
};

}  // namespace anabranch
