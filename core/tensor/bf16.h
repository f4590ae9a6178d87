// bfloat16: the upper half of a float. Stored and moved as such, computed with as float.
#pragma once

#include <bit>
#include <cstdint>

namespace anabranch {

struct Bf16 {
  uint16_t bits = 0;

  Bf16() = default;

  // Rounds to nearest, ties to even; a NaN stays a NaN.
  explicit constexpr Bf16(float value) {
    const auto word = std::bit_cast<uint32_t>(value);
    const uint32_t rounded = word + 0x7FFFU + ((word >> 16U) & 1U);
    const bool nan = (word & 0x7FFFFFFFU) > 0x7F800000U;
    bits = static_cast<uint16_t>((nan ? word | 0x400000U : rounded) >> 16U);
  }

  explicit constexpr operator float() const {
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16U);
  }

  bool operator==(const Bf16&) const = default;
};

static_assert(sizeof(Bf16) == 2);

}  // namespace anabranch
