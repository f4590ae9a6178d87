// The code points behind \p{L}, \p{N} and \s in the split patterns: explicit, because libraries
// differ in their Unicode version and in what \s means.
#pragma once

#include <cstdint>
#include <span>

namespace anabranch {

// The Unicode version of the ranges. Code points assigned later count as neither letter nor number.
inline constexpr const char* kUnicodeVersion = "14.0.0";

// Code points first..last, both included.
struct CodeRange {
  std::uint32_t first;
  std::uint32_t last;
};

// General category L*, ascending.
std::span<const CodeRange> letter_ranges();

// General category N*, ascending.
std::span<const CodeRange> number_ranges();

// Property White_Space, ascending.
std::span<const CodeRange> space_ranges();

}  // namespace anabranch
