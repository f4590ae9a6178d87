// Unsigned images of floating numbers that keep their order: -0 as 0, and a NaN below all.
#pragma once

#include <bit>
#include <cstdint>

namespace anabranch {

[[nodiscard]] inline uint32_t sort_key(float v) {
  if (v != v) return 0;
  const auto bits = std::bit_cast<uint32_t>(v + 0.0F);
  return (bits >> 31U) != 0 ? ~bits : bits | 0x80000000U;
}

[[nodiscard]] inline uint64_t sort_key(double v) {
  if (v != v) return 0;
  const auto bits = std::bit_cast<uint64_t>(v + 0.0);
  return (bits >> 63U) != 0 ? ~bits : bits | (uint64_t{1} << 63U);
}

}  // namespace anabranch
