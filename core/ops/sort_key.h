// Unsigned images of floating numbers that keep their order: -0 as 0, and a NaN below all. What has
// the key back: 0 for both zeros, and one NaN for all of them. For kernels too.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

namespace anabranch {

[[nodiscard]] constexpr uint32_t sort_key(float v) {
  if (v != v) return 0;
  const auto bits = std::bit_cast<uint32_t>(v + 0.0F);
  return (bits >> 31U) != 0 ? ~bits : bits | 0x80000000U;
}

[[nodiscard]] constexpr uint64_t sort_key(double v) {
  if (v != v) return 0;
  const auto bits = std::bit_cast<uint64_t>(v + 0.0);
  return (bits >> 63U) != 0 ? ~bits : bits | (uint64_t{1} << 63U);
}

[[nodiscard]] constexpr float of_sort_key(uint32_t key) {
  if (key == 0) return std::numeric_limits<float>::quiet_NaN();
  return std::bit_cast<float>((key >> 31U) != 0 ? key & 0x7FFFFFFFU : ~key);
}

[[nodiscard]] constexpr double of_sort_key(uint64_t key) {
  if (key == 0) return std::numeric_limits<double>::quiet_NaN();
  return std::bit_cast<double>((key >> 63U) != 0 ? key & ~(uint64_t{1} << 63U) : ~key);
}

}  // namespace anabranch
