// Counter-based random numbers: a value depends on its key and counter alone, never on how many
// were drawn before, so any layout and any recomputation sees the same numbers.
//
// Source: Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", 2011 (Philox 4x32-10).
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <string_view>

namespace anabranch {

using PhiloxBlock = std::array<uint32_t, 4>;

// Four random words for a 64-bit key and a 128-bit counter given as two words.
constexpr PhiloxBlock philox(uint64_t key, uint64_t counter_low, uint64_t counter_high = 0) {
  auto k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32U);
  auto c0 = static_cast<uint32_t>(counter_low), c1 = static_cast<uint32_t>(counter_low >> 32U);
  auto c2 = static_cast<uint32_t>(counter_high), c3 = static_cast<uint32_t>(counter_high >> 32U);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53U} * c0, p1 = uint64_t{0xCD9E8D57U} * c2;
    const uint32_t n0 = static_cast<uint32_t>(p1 >> 32U) ^ c1 ^ k0;
    const uint32_t n2 = static_cast<uint32_t>(p0 >> 32U) ^ c3 ^ k1;
    c1 = static_cast<uint32_t>(p1);
    c3 = static_cast<uint32_t>(p0);
    c0 = n0;
    c2 = n2;
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
  return {c0, c1, c2, c3};
}

// [0, 1) with 24 random bits, exact in float.
constexpr float uniform_float(uint32_t word) { return static_cast<float>(word >> 8U) * 0x1.0p-24F; }

// Two standard normal values from two words (Box-Muller, in double).
inline std::array<double, 2> normal_pair(uint32_t a, uint32_t b) {
  const double u = (static_cast<double>(a) + 1.0) * 0x1.0p-32;  // (0, 1]: its log is finite
  const double radius = std::sqrt(-2.0 * std::log(u));
  const double angle = 2.0 * std::numbers::pi * static_cast<double>(b) * 0x1.0p-32;
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

// A 64-bit hash of a name (FNV-1a), to key random numbers by what they are for.
constexpr uint64_t name_key(std::string_view name) {
  uint64_t hash = 0xCBF29CE484222325U;
  for (const char c : name) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3U;
  }
  return hash;
}

// Mixes a second key into a first (SplitMix64's finaliser).
constexpr uint64_t mix_keys(uint64_t a, uint64_t b) {
  uint64_t z = a + 0x9E3779B97F4A7C15U * (b + 1);
  z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27U)) * 0x94D049BB133111EBU;
  return z ^ (z >> 31U);
}

}  // namespace anabranch
