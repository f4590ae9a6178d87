#include "runtime/evaluation/python_random.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <unordered_set>

#include "core/base/error.h"

namespace anabranch {

// CPython seeds by an array of the seed's 32-bit digits, after Matsumoto and Nishimura's
// init_by_array.
PythonRandom::PythonRandom(uint64_t seed) {
  std::vector<uint32_t> key = {static_cast<uint32_t>(seed)};
  if (seed >> 32U != 0) key.push_back(static_cast<uint32_t>(seed >> 32U));
  auto& s = state_;
  s[0] = 19650218U;
  for (uint32_t i = 1; i < kWords; ++i) s[i] = 1812433253U * (s[i - 1] ^ (s[i - 1] >> 30U)) + i;
  size_t i = 1, j = 0;
  const auto onwards = [&] {
    if (++i < kWords) return;
    s[0] = s[kWords - 1];
    i = 1;
  };
  for (size_t k = std::max(kWords, key.size()); k > 0; --k) {
    s[i] = (s[i] ^ ((s[i - 1] ^ (s[i - 1] >> 30U)) * 1664525U)) + key[j] + static_cast<uint32_t>(j);
    onwards();
    j = j + 1 < key.size() ? j + 1 : 0;
  }
  for (size_t k = kWords - 1; k > 0; --k) {
    s[i] = (s[i] ^ ((s[i - 1] ^ (s[i - 1] >> 30U)) * 1566083941U)) - static_cast<uint32_t>(i);
    onwards();
  }
  s[0] = 0x80000000U;
}

uint32_t PythonRandom::next() {
  if (at_ == kWords) {
    at_ = 0;
    for (size_t k = 0; k < kWords; ++k) {
      const uint32_t y = (state_[k] & 0x80000000U) | (state_[(k + 1) % kWords] & 0x7fffffffU);
      state_[k] = state_[(k + 397) % kWords] ^ (y >> 1U) ^ ((y & 1U) != 0 ? 0x9908b0dfU : 0U);
    }
  }
  uint32_t y = state_[at_++];
  y ^= y >> 11U;
  y ^= (y << 7U) & 0x9d2c5680U;
  y ^= (y << 15U) & 0xefc60000U;
  return y ^ (y >> 18U);
}

uint32_t PythonRandom::below(uint32_t n) {
  AB_CHECK(n >= 1, "a number below ", n, " is asked for");
  const auto bits = static_cast<unsigned>(std::bit_width(n));
  uint32_t drawn = n;
  while (drawn >= n) drawn = next() >> (32U - bits);
  return drawn;
}

// CPython keeps a pool of the population where that is small, and else a set of those drawn.
std::vector<uint32_t> PythonRandom::sample(uint32_t n, uint32_t k) {
  AB_CHECK(k <= n, k, " of a population of ", n, " are asked for");
  uint64_t pool_size = 21;
  if (k > 5) {
    uint64_t power = 1;
    while (power < uint64_t{3} * k) power *= 4;  // 4 ^ ceil(log4(3 k))
    pool_size += power;
  }
  std::vector<uint32_t> drawn;
  if (n <= pool_size) {
    std::vector<uint32_t> pool(n);
    std::iota(pool.begin(), pool.end(), 0U);
    for (uint32_t i = 0; i < k; ++i) {
      const uint32_t j = below(n - i);
      drawn.push_back(pool[j]);
      pool[j] = pool[n - i - 1];
    }
    return drawn;
  }
  std::unordered_set<uint32_t> seen;
  while (drawn.size() < k) {
    const uint32_t j = below(n);
    if (seen.insert(j).second) drawn.push_back(j);
  }
  return drawn;
}

}  // namespace anabranch
